-- What was parked under one business id.
SELECT p.id, p.parked_at, p.kind, p.reason, p.detail, s.topic AS "topic?", p.record_partition,
       p.record_offset, p.effect, p.released, p.redrives, p.failover IS NOT NULL OR coalesce(e.was_unknown, false) AS "suspect!", p.closed_at, p.closed_as,
       p.first_at, p.first_reason, p.first_detail
FROM oncely.parked AS p
LEFT JOIN oncely.source AS s ON s.id = p.source
LEFT JOIN oncely.effect AS e ON e.key = p.effect
WHERE p.event = $1
ORDER BY coalesce(p.first_at, p.parked_at), p.id

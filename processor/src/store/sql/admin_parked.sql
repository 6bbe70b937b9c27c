-- Dead letters or quarantine, newest first. A filter that is NULL takes everything.
SELECT p.id, p.parked_at, c.name AS "connector?", p.reason, p.tenant, p.business_id, p.detail,
       s.topic AS "topic?", p.record_partition, p.record_offset, p.effect,
       p.redrives, p.redrive_at IS NOT NULL AS "wanted!", p.failover IS NOT NULL OR coalesce(e.was_unknown, false) AS "suspect!",
       p.closed_at, p.closed_as
FROM oncely.parked AS p
LEFT JOIN oncely.connector AS c ON c.id = p.connector
LEFT JOIN oncely.source AS s ON s.id = p.source
LEFT JOIN oncely.effect AS e ON e.key = p.effect
WHERE p.kind = $1 AND ($6::boolean OR p.closed_at IS NULL)
  AND ($2::text IS NULL OR c.name = $2)
  AND ($3::text IS NULL OR p.reason = $3)
  AND ($4::text IS NULL OR p.business_id = $4)
ORDER BY p.parked_at DESC, p.id DESC
LIMIT $5

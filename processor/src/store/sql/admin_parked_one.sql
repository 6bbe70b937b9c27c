-- One parked record with all that was kept of it.
SELECT p.id, p.parked_at, c.name AS "connector?", p.reason, p.tenant, p.business_id, p.detail,
       s.topic AS "topic?", p.record_partition, p.record_offset, p.effect, p.record_timestamp,
       p.redrives, p.redrive_at IS NOT NULL AS "wanted!", p.failover IS NOT NULL OR coalesce(e.was_unknown, false) AS "suspect!",
       p.closed_at, p.closed_as, p.first_at, p.first_reason, p.first_detail,
       k.topic AS "known_topic?", i.first_partition AS "known_partition?", i.first_offset AS "known_offset?",
       i.first_seen_at AS "known_at?", y.value AS "known_value?",
       p.event, p.fingerprint, p.known_fingerprint, p.record_key, p.value, p.headers
FROM oncely.parked AS p
LEFT JOIN oncely.connector AS c ON c.id = p.connector
LEFT JOIN oncely.source AS s ON s.id = p.source
LEFT JOIN oncely.effect AS e ON e.key = p.effect
LEFT JOIN oncely.inbox AS i ON i.key = p.event AND p.known_fingerprint IS NOT NULL
LEFT JOIN oncely.source AS k ON k.id = i.source
LEFT JOIN oncely.payload AS y ON y.event = i.key
WHERE p.kind = $1 AND p.id = $2

-- Parked records of a connector that a person wants decided again, oldest first.
SELECT p.id, p.event, p.released, p.release, p.failover, p.reason, s.id AS "source!", s.topic, p.record_partition AS "record_partition!",
       p.record_offset AS "record_offset!", p.record_timestamp, p.record_key, p.value, p.headers
FROM oncely.parked AS p
JOIN oncely.source AS s ON s.id = p.source
WHERE p.connector = $1 AND p.redrive_at IS NOT NULL
ORDER BY p.redrive_at, p.id
LIMIT $2

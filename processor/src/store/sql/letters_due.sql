-- Dead letters of a connector that are to go to its topic and are not in the outbox yet, oldest first. `record_key`
-- orders them.
SELECT p.id, p.redrives, p.effect, s.topic AS "topic?", p.record_partition, p.record_offset,
       CASE WHEN p.effect IS NULL THEN p.record_key ELSE y.record_key END AS record_key
FROM oncely.parked AS p
LEFT JOIN oncely.source AS s ON s.id = p.source
LEFT JOIN oncely.payload AS y ON p.effect IS NOT NULL AND y.event = p.event
WHERE p.connector = $1 AND p.letter
ORDER BY p.id
LIMIT $2
FOR UPDATE OF p SKIP LOCKED

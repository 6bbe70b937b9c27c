-- Dead letters of a connector that are to go to its topic and are not in the outbox yet, oldest first. `record_key`
-- orders them. `record` tells one from all others, also from what lay at its place before, and from that of a topic
-- of the same name.
SELECT p.id, p.redrives, p.effect,
       CASE WHEN p.effect IS NULL THEN
                 concat_ws('/', s.cluster_id, s.topic_id, s.topic, p.record_partition, p.record_offset,
                           coalesce(p.record_timestamp, -1), md5(coalesce(p.value, ''))) END AS record,
       CASE WHEN p.effect IS NULL THEN p.record_key ELSE y.record_key END AS record_key
FROM oncely.parked AS p
LEFT JOIN oncely.source AS s ON s.id = p.source
LEFT JOIN oncely.payload AS y ON p.effect IS NOT NULL AND y.event = p.event
WHERE p.connector = $1 AND p.letter
ORDER BY p.id
LIMIT $2
FOR UPDATE OF p SKIP LOCKED

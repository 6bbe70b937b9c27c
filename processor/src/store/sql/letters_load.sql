-- Dead letters as they are sent. That of an effect is the record that owed it, where its bytes are kept, or
-- the place where it lies.
SELECT p.id AS "id!", c.name AS "connector!", c.group_name AS "group_name!", p.reason AS "reason!",
       p.detail AS "detail!", p.business_id, p.redrives AS "redrives!", p.effect,
       e.name AS "effect_name?", coalesce(e.attempts, 1) AS "attempts!",
       coalesce(s.topic, x.topic) AS "topic?",
       coalesce(p.record_partition, y.record_partition, i.first_partition) AS "record_partition?",
       coalesce(p.record_offset, y.record_offset, i.first_offset) AS "record_offset?",
       coalesce(p.record_timestamp, y.record_timestamp) AS "record_timestamp?",
       CASE WHEN p.effect IS NULL THEN p.record_key ELSE y.record_key END AS record_key,
       CASE WHEN p.effect IS NULL THEN p.value ELSE y.value END AS value,
       CASE WHEN p.effect IS NULL THEN p.headers ELSE y.headers END AS headers
FROM oncely.parked AS p
JOIN oncely.connector AS c ON c.id = p.connector
LEFT JOIN oncely.source AS s ON s.id = p.source
LEFT JOIN oncely.effect AS e ON e.key = p.effect
LEFT JOIN oncely.payload AS y ON p.effect IS NOT NULL AND y.event = p.event
LEFT JOIN oncely.inbox AS i ON p.effect IS NOT NULL AND i.key = p.event
LEFT JOIN oncely.source AS x ON x.id = coalesce(y.source, i.source)
WHERE p.id = ANY($1::bigint[])

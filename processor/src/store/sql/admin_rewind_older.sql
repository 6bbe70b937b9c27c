-- By which other words than these the ids were made of events on record that would be read once more: events that were
-- decided while somebody ran such a file, who says so twice a minute.
SELECT r.words, r.seen_at
FROM oncely.key_rule AS r
JOIN oncely.connector AS c ON c.id = r.connector
WHERE c.name = $1 AND r.effect = '' AND r.digest <> $2
  AND EXISTS (
    SELECT FROM oncely.inbox AS i
    JOIN oncely.source AS s ON s.id = i.source AND s.connector = c.id
    JOIN UNNEST($3::text[], $4::text[], $5::text[], $6::integer[], $7::bigint[])
        AS u (cluster_id, topic, topic_id, partition, place)
        ON u.cluster_id = s.cluster_id AND u.topic = s.topic AND u.topic_id = s.topic_id
        AND u.partition = i.first_partition AND u.place <= i.first_offset
    WHERE i.first_seen_at BETWEEN r.first_at AND r.seen_at + interval '2 minutes')
ORDER BY r.seen_at DESC
LIMIT 1

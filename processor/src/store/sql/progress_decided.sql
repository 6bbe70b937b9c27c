-- All that lay in these partitions when the database failed over is decided: what is done is on record again.
UPDATE oncely.progress AS p
SET suspect = NULL
FROM UNNEST($3::text[], $4::text[], $5::integer[], $6::bigint[]) AS u (topic, topic_id, partition, epoch)
WHERE p.group_name = $1 AND p.cluster_id = $2 AND p.topic = u.topic AND p.topic_id = u.topic_id
  AND p.partition = u.partition AND p.epoch = u.epoch AND (SELECT oncely.is_here())

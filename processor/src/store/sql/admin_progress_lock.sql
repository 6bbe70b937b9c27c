-- Stopped partitions that a person is about to accept.
SELECT cluster_id, topic_id, partition, epoch, position, stopped AS "stopped!"
FROM oncely.progress
WHERE group_name = $1 AND topic = $2 AND ($3::integer IS NULL OR partition = $3)
  AND stopped IS NOT NULL
ORDER BY cluster_id, topic_id, partition
FOR UPDATE

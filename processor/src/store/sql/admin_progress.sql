-- How far every group is. A filter that is NULL takes everything.
SELECT group_name, cluster_id, topic, topic_id, partition, epoch, position, updated_at, suspect, stopped
FROM oncely.progress
WHERE ($1::text IS NULL OR group_name = $1)
  AND ($2::text IS NULL OR topic = $2)
  AND ($3::integer IS NULL OR partition = $3)
  AND (NOT $4::boolean OR stopped IS NOT NULL)
ORDER BY group_name, topic, topic_id, partition

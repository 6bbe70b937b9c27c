UPDATE oncely.progress SET stopped = $6, updated_at = now()
WHERE group_name = $1 AND cluster_id = $2 AND topic = $3 AND topic_id = $4 AND partition = $5

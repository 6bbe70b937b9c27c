-- Notes for people who reads these partitions from now on.
UPDATE oncely.progress SET holder = $6
WHERE group_name = $1 AND cluster_id = $2 AND topic = $3 AND topic_id = $4 AND partition = ANY($5)
  AND holder IS DISTINCT FROM $6

-- Notes who reads these partitions from now on. How far all was decided is said anew: the log may have been cut off.
UPDATE oncely.progress SET holder = $6, decided = NULL
WHERE group_name = $1 AND cluster_id = $2 AND topic = $3 AND topic_id = $4 AND partition = ANY($5)
  AND (holder IS DISTINCT FROM $6 OR decided IS NOT NULL)

-- All that is on record of a group's topic, under this and other topic ids.
SELECT topic_id, partition, epoch, position, witness_offset, witness_timestamp, witness_hash, suspect, decided, stopped
FROM oncely.progress
WHERE group_name = $1 AND cluster_id = $2 AND topic = $3

-- Epochs of a group's partitions: whoever lowers a position raises it.
SELECT topic, topic_id, partition, epoch
FROM oncely.progress
WHERE group_name = $1 AND cluster_id = $2

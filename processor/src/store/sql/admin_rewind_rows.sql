-- How far a connector is, and that nothing moves meanwhile.
SELECT p.group_name, p.cluster_id, p.topic, p.topic_id, p.partition, p.epoch, p.position, p.stopped
FROM oncely.progress AS p
JOIN oncely.connector AS c ON c.group_name = p.group_name
WHERE c.name = $1 AND ($2::text IS NULL OR p.topic = $2) AND ($3::integer IS NULL OR p.partition = $3)
ORDER BY p.cluster_id, p.topic, p.topic_id, p.partition
FOR UPDATE OF p

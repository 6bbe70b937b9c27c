-- How far every group is, and who reads. A filter that is NULL takes everything.
SELECT p.group_name, p.cluster_id, p.topic, p.topic_id, p.partition, p.epoch, p.position, p.updated_at,
       p.suspect, p.stopped, w.id AS "holder?", w.host AS "host?"
FROM oncely.progress AS p
LEFT JOIN oncely.worker AS w
    ON w.id = p.holder AND w.dead_at IS NULL AND w.ended_at IS NULL
    AND w.heartbeat_at > now() - make_interval(secs => w.lease_ms / 1000.0)
WHERE ($1::text IS NULL OR p.group_name = $1)
  AND ($2::text IS NULL OR p.topic = $2)
  AND ($3::integer IS NULL OR p.partition = $3)
  AND (NOT $4::boolean OR p.stopped IS NOT NULL)
ORDER BY p.group_name, p.topic, p.topic_id, p.partition

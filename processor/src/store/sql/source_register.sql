INSERT INTO oncely.source (connector, cluster_id, topic_id, topic) VALUES ($1, $2, $3, $4)
ON CONFLICT (connector, cluster_id, topic_id, topic) DO UPDATE SET topic = excluded.topic
RETURNING id

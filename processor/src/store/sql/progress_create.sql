-- Resolves a start once; whoever is second takes what is there.
INSERT INTO oncely.progress (group_name, cluster_id, topic, topic_id, partition, position, stopped)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT DO NOTHING

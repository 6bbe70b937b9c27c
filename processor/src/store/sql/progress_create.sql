-- Resolves a start once; whoever is second takes what is there. A row that is missing soon after a failover may
-- be among what was lost, and what it stood for may have been done.
INSERT INTO oncely.progress (group_name, cluster_id, topic, topic_id, partition, position, stopped, suspect)
VALUES ($1, $2, $3, $4, $5, $6, $7,
        CASE WHEN EXISTS (SELECT FROM oncely.failover WHERE NOT lossless AND at > now() - interval '10 minutes')
             THEN 9223372036854775807 END)
ON CONFLICT DO NOTHING

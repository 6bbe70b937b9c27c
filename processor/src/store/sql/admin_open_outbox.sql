-- Records that the brokers do not have, by connector, for gauges.
SELECT c.name AS connector,
       count(*) FILTER (WHERE o.status = 'waiting') AS "waiting!",
       count(*) FILTER (WHERE o.status = 'held') AS "held!",
       coalesce(min(extract(epoch FROM o.created_at))::bigint, 0) AS "oldest!"
FROM oncely.outbox AS o
JOIN oncely.connector AS c ON c.id = o.connector
WHERE o.status IN ('waiting', 'held')
GROUP BY c.name
ORDER BY c.name

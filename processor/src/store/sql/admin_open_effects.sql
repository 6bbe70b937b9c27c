-- Open effects, for gauges.
SELECT c.name AS connector, e.name AS effect, e.status, count(*) AS "count!",
       extract(epoch FROM min(e.created_at))::bigint AS "oldest!",
       NOT EXISTS (SELECT FROM oncely.wired AS w
                   WHERE w.connector = c.id AND w.effect = e.name) AS "orphaned!"
FROM oncely.effect AS e
JOIN oncely.connector AS c ON c.id = e.connector
WHERE e.settled_at IS NULL
GROUP BY c.id, c.name, e.name, e.status
ORDER BY c.name, e.name, e.status

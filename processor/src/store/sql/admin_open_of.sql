-- How many effects of each kind are open.
SELECT c.name AS connector, e.name AS effect, count(*) AS "count!",
       NOT EXISTS (SELECT FROM oncely.wired AS w
                   WHERE w.connector = c.id AND w.effect = e.name) AS "orphaned!"
FROM oncely.effect AS e
JOIN oncely.connector AS c ON c.id = e.connector
WHERE e.settled_at IS NULL
GROUP BY c.id, c.name, e.name
ORDER BY c.name, e.name

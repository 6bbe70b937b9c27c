-- How many effects of each kind are open.
SELECT c.name AS connector, e.name AS effect, count(*) AS "count!"
FROM oncely.effect AS e
JOIN oncely.connector AS c ON c.id = e.connector
WHERE e.settled_at IS NULL
GROUP BY c.name, e.name
ORDER BY c.name, e.name

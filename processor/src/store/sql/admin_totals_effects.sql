-- Effects of one connector by status, and how often they were taken over.
SELECT e.status, count(*) AS "effects!", sum(e.takeovers)::bigint AS "takeovers!"
FROM oncely.connector AS c
JOIN oncely.effect AS e ON e.connector = c.id
WHERE c.name = $1
GROUP BY e.status

-- Events of one connector by outcome, and how often they came again.
SELECT i.outcome, count(*) AS "events!", coalesce(sum(r.times), 0)::bigint AS "repeats!"
FROM oncely.connector AS c
JOIN oncely.source AS s ON s.connector = c.id
JOIN oncely.inbox AS i ON i.source = s.id
LEFT JOIN (SELECT key, sum(times) AS times FROM oncely.repeat GROUP BY key) AS r ON r.key = i.key
WHERE c.name = $1
GROUP BY i.outcome

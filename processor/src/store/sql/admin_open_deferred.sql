-- Events that wait, by connector and cause, for gauges.
SELECT c.name AS connector, d.cause, count(*) AS "count!",
       extract(epoch FROM min(d.deferred_at))::bigint AS "oldest!"
FROM oncely.deferred AS d
JOIN oncely.connector AS c ON c.id = d.connector
WHERE d.closed_at IS NULL
GROUP BY c.name, d.cause
ORDER BY c.name, d.cause

-- Parked rows by connector, for gauges.
SELECT c.name AS connector,
       count(*) FILTER (WHERE p.kind = 'dead_letter') AS "dead_letters!",
       count(*) FILTER (WHERE p.kind = 'quarantine') AS "quarantined!"
FROM oncely.parked AS p
JOIN oncely.connector AS c ON c.id = p.connector
WHERE p.closed_at IS NULL
GROUP BY c.name
ORDER BY c.name

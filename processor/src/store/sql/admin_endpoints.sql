-- Disabled endpoints, the newest first.
SELECT c.name AS connector, p.name AS effect, p.url, p.disabled_at
FROM oncely.endpoint AS p JOIN oncely.connector AS c ON c.id = p.connector
WHERE ($1::text IS NULL OR c.name = $1) AND ($2::text IS NULL OR p.url = $2)
ORDER BY p.disabled_at DESC, c.name, p.name, p.url

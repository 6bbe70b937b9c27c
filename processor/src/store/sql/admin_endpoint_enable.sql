-- Running processors notice within a second or two.
DELETE FROM oncely.endpoint AS p USING oncely.connector AS c
WHERE c.id = p.connector AND ($1::text IS NULL OR c.name = $1) AND ($2::text IS NULL OR p.url = $2)
RETURNING c.name AS connector, p.name AS effect, p.url, p.disabled_at

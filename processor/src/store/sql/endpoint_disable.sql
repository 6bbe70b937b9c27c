-- Endpoints that said that they are gone; gives those of which nobody knew it before.
INSERT INTO oncely.endpoint (connector, name, url)
SELECT $1, $2, url FROM unnest($3::text[]) AS url
ON CONFLICT DO NOTHING
RETURNING url

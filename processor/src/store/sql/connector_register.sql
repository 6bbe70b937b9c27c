INSERT INTO oncely.connector (name, scope, group_name) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE
SET scope = excluded.scope, group_name = excluded.group_name, seen_at = now()
RETURNING id

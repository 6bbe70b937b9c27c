INSERT INTO oncely.connector (name, scope, group_name, effects) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE
SET scope = excluded.scope, group_name = excluded.group_name, effects = excluded.effects, seen_at = now()
RETURNING id

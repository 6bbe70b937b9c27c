INSERT INTO oncely.connector (name, scope, group_name, effects, dead_letter, redrives_max, lookups)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (name) DO UPDATE
SET scope = excluded.scope, group_name = excluded.group_name, effects = excluded.effects, seen_at = now(),
    dead_letter = excluded.dead_letter, redrives_max = excluded.redrives_max, lookups = excluded.lookups
RETURNING id

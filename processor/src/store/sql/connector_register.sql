-- The connector as somebody runs it now, with the words by which its keys are made. The rule of an effect that was not in
-- the file before begins anew.
WITH before AS (
    SELECT effects FROM oncely.connector WHERE name = $1
), own AS (
    INSERT INTO oncely.connector (name, scope, group_name, effects, dead_letter, redrives_max, lookups)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (name) DO UPDATE
    SET scope = excluded.scope, group_name = excluded.group_name, effects = excluded.effects, seen_at = now(),
        dead_letter = excluded.dead_letter, redrives_max = excluded.redrives_max, lookups = excluded.lookups
    RETURNING id
), rules AS (
    INSERT INTO oncely.key_rule (connector, effect, digest, words)
    SELECT own.id, u.effect, u.digest, u.words
    FROM own, UNNEST($8::text[], $9::uuid[], $10::text[]) AS u (effect, digest, words)
    ON CONFLICT (connector, effect, digest) DO UPDATE
    SET seen_at = now(),
        first_at = CASE WHEN key_rule.effect = '' OR EXISTS (SELECT FROM before WHERE key_rule.effect = ANY(before.effects))
                        THEN key_rule.first_at ELSE now() END
)
SELECT id AS "id!" FROM own

-- What was skipped because one of these was not done, of the same events, waits for it again.
WITH RECURSIVE candidate AS (
    SELECT e.key, e.after_keys
    FROM oncely.inbox AS i
    CROSS JOIN LATERAL unnest(i.effects) AS n (key)
    JOIN oncely.effect AS e ON e.key = n.key
    WHERE i.key = ANY($2::uuid[]) AND e.status = 'skipped'
      AND e.note = 'an effect that it comes after was not done'
), again (key) AS (
    SELECT unnest($1::uuid[])
    UNION
    SELECT c.key FROM candidate AS c JOIN again AS a ON a.key = ANY(c.after_keys)
)
UPDATE oncely.effect AS e
SET status = 'waiting', settled_at = NULL, due_at = NULL, note = NULL
FROM again
WHERE e.key = again.key AND e.status = 'skipped'
RETURNING e.key

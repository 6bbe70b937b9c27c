-- Blocked effects whose turn has come are due now; those that never can run are skipped.
UPDATE oncely.effect AS e
SET status = CASE WHEN u.skip THEN 'skipped' ELSE 'waiting' END,
    due_at = CASE WHEN u.skip THEN NULL ELSE now() END,
    settled_at = CASE WHEN u.skip THEN now() END,
    note = CASE WHEN u.skip THEN 'an effect that it comes after was not done' END
FROM UNNEST($1::uuid[], $2::boolean[]) AS u (key, skip)
WHERE e.key = u.key AND e.status = 'waiting' AND e.due_at IS NULL
RETURNING e.key, e.status

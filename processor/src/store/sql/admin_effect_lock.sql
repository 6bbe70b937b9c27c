-- The row that a person is about to change; the lane is locked already.
SELECT status, attempts, takeovers, was_unknown, note, due_at IS NULL AS "blocked!"
FROM oncely.effect
WHERE key = $1
FOR UPDATE

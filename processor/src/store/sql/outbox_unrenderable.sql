-- Effects for which no record can be made: nothing was sent, so they are rejected.
UPDATE oncely.effect AS e
SET status = 'rejected', settled_at = now(), due_at = NULL, note = u.note
FROM UNNEST($1::uuid[], $2::text[]) AS u (key, note)
WHERE e.key = u.key AND e.settled_at IS NULL
RETURNING e.key

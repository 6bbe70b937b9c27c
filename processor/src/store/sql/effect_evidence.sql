-- A success that a stale owner saw settles the effect, whoever holds it now.
UPDATE oncely.effect AS e
SET status = 'done', worker = NULL, due_at = NULL, settled_at = now(), result = u.result,
    attempts = e.attempts + 1, status_code = u.status_code, note = u.note
FROM UNNEST($1::uuid[], $2::bytea[], $3::smallint[], $4::text[])
     AS u (key, result, status_code, note)
-- Spelled so that no plan walks through all open effects.
WHERE e.key = u.key AND (e.settled_at IS NULL) IS TRUE
RETURNING e.key

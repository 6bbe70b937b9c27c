-- Ledger lines that are written now, or never will be.
UPDATE oncely.effect AS e
SET status = u.status, due_at = NULL, settled_at = now(), note = nullif(u.note, '')
FROM UNNEST($1::uuid[], $2::text[], $3::text[]) AS u (key, status, note)
WHERE e.key = u.key AND e.status = 'waiting'

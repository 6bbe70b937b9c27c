-- Ledger lines whose time has come: nothing claims them, the next sweep writes them.
SELECT DISTINCT lane
FROM oncely.effect
WHERE connector = $1 AND name = ANY($2::text[]) AND due_at <= now() AND status = 'waiting'
LIMIT $3

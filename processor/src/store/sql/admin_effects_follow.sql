-- What was skipped because an effect before it was not done waits for it again.
UPDATE oncely.effect
SET status = 'waiting', settled_at = NULL, due_at = NULL, note = NULL
WHERE key = ANY($1::uuid[]) AND status = 'skipped'

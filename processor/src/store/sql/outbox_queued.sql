-- Effects whose records are in the outbox now.
UPDATE oncely.effect
SET due_at = 'infinity'
WHERE key = ANY($1::uuid[]) AND status = 'waiting'

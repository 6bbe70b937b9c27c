-- Events whose turn has come and that did not go with it.
UPDATE oncely.deferred
SET due_at = now()
WHERE id = ANY($1::bigint[]) AND closed_at IS NULL AND due_at > now()

-- Their time has come, by a person's word.
UPDATE oncely.deferred
SET due_at = '-infinity'
WHERE id = ANY($1::bigint[]) AND closed_at IS NULL

-- Events whose turn has come and that did not go with it: they are overdue whatever has been read.
UPDATE oncely.deferred
SET due_at = '-infinity'
WHERE id = ANY($1::bigint[]) AND closed_at IS NULL AND due_at > '-infinity'

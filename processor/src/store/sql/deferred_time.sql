-- Events that no person holds back any more, and that wait for a version from now on.
UPDATE oncely.deferred
SET due_at = now() + make_interval(secs => $2::bigint / 1000.0)
WHERE id = ANY($1::bigint[]) AND closed_at IS NULL AND due_at = 'infinity'

-- Records outcomes of claims that are still ours. What is not returned has another owner by now.
UPDATE oncely.effect AS e
SET status = u.status, worker = NULL, attempts = e.attempts + u.tries,
    failures = e.failures + u.failures,
    lookups = CASE WHEN u.tries > 0 THEN 0 ELSE e.lookups + u.lookups END,
    failing_since = CASE WHEN u.failures > 0 THEN coalesce(e.failing_since, now())
                         WHEN u.tries = 0 AND u.was_unknown THEN e.failing_since END,
    unknown_at = coalesce(now() - make_interval(secs => u.unknown_ms / 1000.0), e.unknown_at),
    due_at = CASE WHEN u.status IN ('waiting', 'unknown')
                  THEN now() + make_interval(secs => u.due_in_ms / 1000.0) END,
    settled_at = CASE WHEN u.status IN ('done', 'rejected', 'skipped') THEN now() END,
    status_code = u.status_code, note = u.note, was_unknown = u.was_unknown,
    asks = u.asks, result = u.result
FROM UNNEST($2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::smallint[], $7::text[],
            $8::boolean[], $9::boolean[], $10::bigint[], $11::bytea[], $12::integer[], $13::integer[],
            $14::integer[])
     AS u (key, fence, status, due_in_ms, status_code, note, was_unknown, asks, unknown_ms, result,
           tries, failures, lookups)
-- Spelled so that no plan walks through all claims of the worker for each of these.
WHERE e.key = u.key AND e.fence = u.fence AND e.worker IS NOT DISTINCT FROM $1
RETURNING e.key

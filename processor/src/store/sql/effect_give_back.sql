-- Claims that were never sent go back as they were; nobody has seen them.
UPDATE oncely.effect AS e
SET status = CASE WHEN e.was_unknown THEN 'unknown' ELSE 'waiting' END, worker = NULL,
    due_at = now(),
    first_sent_at = CASE WHEN e.attempts = 0 AND e.takeovers = 0 AND NOT e.suspect THEN NULL ELSE e.first_sent_at END,
    last_sent_at = CASE WHEN e.attempts = 0 AND e.takeovers = 0 THEN NULL ELSE e.last_sent_at END
FROM UNNEST($2::uuid[], $3::bigint[]) AS u (key, fence)
-- Spelled so that no plan walks through all claims of the worker.
WHERE e.key = u.key AND e.fence = u.fence AND e.worker IS NOT DISTINCT FROM $1

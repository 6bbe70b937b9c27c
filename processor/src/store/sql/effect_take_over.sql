-- A dead worker's claim becomes unknown, or whatever its rule makes of that.
UPDATE oncely.effect AS e
SET status = u.status, worker = NULL, takeovers = e.takeovers + 1, was_unknown = true,
    due_at = CASE WHEN u.status = 'unknown'
                  THEN now() + make_interval(secs => u.due_in_ms / 1000.0) END,
    settled_at = CASE WHEN u.status = 'done' THEN now() END,
    note = u.note
FROM UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::bigint[], $5::text[])
     AS u (key, fence, status, due_in_ms, note)
WHERE e.key = u.key AND e.fence = u.fence AND e.worker IS NOT NULL
RETURNING e.key

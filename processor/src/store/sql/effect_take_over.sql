-- A dead worker's claim becomes unknown, or whatever its rule makes of that.
UPDATE oncely.effect AS e
SET status = u.status, worker = NULL, takeovers = e.takeovers + 1, was_unknown = true,
    due_at = CASE WHEN u.status = 'unknown'
                  THEN now() + make_interval(secs => u.due_in_ms / 1000.0) END,
    settled_at = CASE WHEN u.status = 'done' THEN now() END,
    unknown_at = CASE WHEN u.sent THEN now() ELSE coalesce(e.unknown_at, now()) END,
    asks = u.asks, note = u.note
FROM UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::boolean[], $7::boolean[])
     AS u (key, fence, status, due_in_ms, note, asks, sent)
WHERE e.key = u.key AND e.fence = u.fence AND e.worker IS NOT NULL
RETURNING e.key

-- What is open here may have been sent since, and answered. A record that is in the outbox is sent again with
-- the same id.
UPDATE oncely.effect AS e
SET suspect = true, was_unknown = true, worker = NULL,
    status = CASE WHEN e.status = 'claimed' THEN 'unknown' ELSE e.status END,
    first_sent_at = coalesce(e.first_sent_at, f.lost_since),
    unknown_at = greatest(e.unknown_at, f.quiet_at),
    due_at = CASE WHEN e.status = 'claimed' THEN f.quiet_at
                  WHEN e.due_at IS NOT NULL THEN greatest(e.due_at, f.quiet_at) END,
    note = left(concat_ws('; ', 'failover ' || f.number || ' may have lost what became of it', e.note), 500)
FROM oncely.failover AS f
WHERE f.number = $1 AND e.settled_at IS NULL AND e.status IN ('waiting', 'claimed', 'unknown')
  AND e.due_at IS DISTINCT FROM 'infinity'

-- Claims effects of one kind whose time has come, oldest first. Nobody waits for anybody.
WITH due AS (
    SELECT key
    FROM oncely.effect
    WHERE connector = $1 AND name = $2 AND due_at <= now() AND (SELECT oncely.may_claim($4))
    ORDER BY due_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
UPDATE oncely.effect AS e
SET status = 'claimed', worker = $4, fence = nextval('oncely.fence'), due_at = NULL,
    first_sent_at = coalesce(first_sent_at, now()),
    last_sent_at = CASE WHEN asks THEN last_sent_at ELSE now() END
FROM due
WHERE e.key = due.key
RETURNING e.key, e.fence AS "fence!", e.event, e.lane, e.version, e.name, e.connector, e.tenant, e.business_id,
          e.request, e.was_unknown, e.asks, e.suspect, e.attempts, e.failures,
          e.lookups, e.takeovers, e.after_keys,
          (extract(epoch FROM now() - e.first_sent_at) * 1000)::bigint AS "elapsed_ms!",
          (extract(epoch FROM now() - e.failing_since) * 1000)::bigint AS failing_ms,
          (extract(epoch FROM now() - e.unknown_at) * 1000)::bigint AS quiet_ms,
          e.status

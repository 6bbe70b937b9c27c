-- Effects of these names, in these lanes, whose turn has come. The lanes are locked. What another relay puts
-- into the outbox just now is left to it.
SELECT e.key, coalesce(e.fence, 0) AS "fence!", e.event, e.lane, e.version, e.name, e.connector,
       e.tenant, e.business_id, e.request, e.was_unknown, e.asks, e.suspect, e.attempts, e.failures,
       e.lookups, e.takeovers, e.after_keys,
       coalesce((extract(epoch FROM now() - e.first_sent_at) * 1000)::bigint, 0) AS "elapsed_ms!",
       (extract(epoch FROM now() - e.failing_since) * 1000)::bigint AS failing_ms,
       (extract(epoch FROM now() - e.unknown_at) * 1000)::bigint AS quiet_ms,
       e.status
FROM oncely.effect AS e
WHERE e.lane = ANY($3::uuid[]) AND e.connector = $1 AND e.name = ANY($2::text[])
  AND e.settled_at IS NULL AND e.due_at <= now()
ORDER BY e.version, e.ordinal
FOR UPDATE SKIP LOCKED

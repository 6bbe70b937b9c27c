-- Claims whose worker is on record as dead or ended, of the effects that are loaded here.
SELECT e.key, e.fence AS "fence!", e.worker AS "worker!", e.connector, e.name, e.lane, e.tenant,
       e.business_id, e.was_unknown, e.asks, e.suspect, e.attempts, e.failures, e.lookups, e.takeovers,
       (extract(epoch FROM now() - e.first_sent_at) * 1000)::bigint AS "elapsed_ms!",
       (extract(epoch FROM now() - e.failing_since) * 1000)::bigint AS failing_ms,
       (extract(epoch FROM now() - e.unknown_at) * 1000)::bigint AS quiet_ms
FROM oncely.effect AS e
JOIN oncely.worker AS w ON w.id = e.worker
WHERE (w.dead_at IS NOT NULL OR w.ended_at IS NOT NULL) AND e.connector = $1
  AND e.name = ANY($2::text[])
LIMIT $3
FOR UPDATE OF e SKIP LOCKED

-- Claims whose worker is on record as dead or ended, of the effects that are loaded here. The workers are looked up
-- first: as a rule there are none with claims, and no plan may walk through all claims to find that out.
SELECT e.key, e.fence AS "fence!", e.worker AS "worker!", e.connector, e.name, e.lane, e.tenant,
       e.business_id, e.was_unknown, e.asks, e.suspect, e.attempts, e.failures, e.lookups, e.takeovers,
       (extract(epoch FROM now() - e.first_sent_at) * 1000)::bigint AS "elapsed_ms!",
       (extract(epoch FROM now() - e.failing_since) * 1000)::bigint AS failing_ms,
       (extract(epoch FROM now() - e.unknown_at) * 1000)::bigint AS quiet_ms
FROM oncely.effect AS e
WHERE e.worker = ANY (ARRAY(SELECT id FROM oncely.worker WHERE dead_at IS NOT NULL OR ended_at IS NOT NULL))
  AND e.connector = $1
  AND e.name = ANY($2::text[])
LIMIT $3
FOR UPDATE OF e SKIP LOCKED

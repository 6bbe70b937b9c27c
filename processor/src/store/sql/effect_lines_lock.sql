-- The lines of some lanes that are due. The lanes are locked, so nothing else changes these rows.
SELECT key, coalesce(fence, 0) AS "fence!", event, lane, version, name, connector, tenant, business_id,
       request, was_unknown, asks, suspect, attempts, failures, lookups, takeovers, after_keys,
       0::bigint AS "elapsed_ms!", NULL::bigint AS failing_ms, NULL::bigint AS quiet_ms, status
FROM oncely.effect
WHERE connector = $1 AND name = ANY($2::text[]) AND due_at <= now() AND status = 'waiting'
  AND lane = ANY($3::uuid[])
ORDER BY key
FOR UPDATE

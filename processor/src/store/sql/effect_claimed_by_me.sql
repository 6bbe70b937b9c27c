SELECT key, fence AS "fence!", event, lane, version, name, connector, tenant, business_id, request,
       was_unknown, asks, suspect, attempts, failures, lookups, takeovers, after_keys,
       (extract(epoch FROM now() - first_sent_at) * 1000)::bigint AS "elapsed_ms!",
       (extract(epoch FROM now() - failing_since) * 1000)::bigint AS failing_ms,
       (extract(epoch FROM now() - unknown_at) * 1000)::bigint AS quiet_ms,
       status
FROM oncely.effect
WHERE worker = $1

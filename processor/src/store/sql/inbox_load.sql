SELECT key, fingerprint, outcome, effects, source, first_partition, first_offset,
       (extract(epoch FROM now() - first_seen_at) * 1000)::bigint AS "age_ms!"
FROM oncely.inbox
WHERE key = ANY($1::uuid[])

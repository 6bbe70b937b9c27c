-- Entities that are older than ids are remembered.
SELECT key
FROM oncely.entity
WHERE key = ANY($1::uuid[]) AND created_at < now() - make_interval(secs => $2::bigint / 1000.0)

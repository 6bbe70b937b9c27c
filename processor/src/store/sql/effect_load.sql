SELECT key, status, request_hash
FROM oncely.effect
WHERE key = ANY($1::uuid[])

SELECT key, event, version, state
FROM oncely.entity
WHERE key = ANY($1::uuid[])

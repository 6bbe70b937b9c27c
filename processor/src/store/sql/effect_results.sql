-- Recorded results of effects that others are rendered from.
SELECT key, name, status, result
FROM oncely.effect
WHERE key = ANY($1::uuid[])

-- Locks the entities of a batch, or of effects about to be settled, in key order.
SELECT key, event, version, state
FROM oncely.entity
WHERE key = ANY($1::uuid[])
ORDER BY key
FOR NO KEY UPDATE

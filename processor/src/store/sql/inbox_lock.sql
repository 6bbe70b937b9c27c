-- The lane lock of effects without an entity: the inbox rows of their events, in key order.
SELECT key
FROM oncely.inbox
WHERE key = ANY($1::uuid[])
ORDER BY key
FOR NO KEY UPDATE

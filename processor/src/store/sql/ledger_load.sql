SELECT key, content
FROM oncely.ledger
WHERE key = ANY($1::uuid[])

-- Usage lines of one event: written with it, so that their time is its time, or later, as its effects.
SELECT key, name, account, metric, quantity::text AS "quantity!", created_at
FROM oncely.ledger
WHERE (tenant = $1 AND event = $2 AND created_at = $3) OR key = ANY($4::uuid[])
ORDER BY name, key

-- Usage lines of one event. They were written with it, so their time is its time.
SELECT name, account, metric, quantity::text AS "quantity!", created_at
FROM oncely.ledger
WHERE tenant = $1 AND event = $2 AND created_at = $3
ORDER BY name, key

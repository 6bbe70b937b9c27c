INSERT INTO oncely.ledger (key, event, content, connector, name, tenant, account, metric, quantity, at)
SELECT u.key, u.event, u.content, $10, u.name, u.tenant, u.account, u.metric, u.quantity::numeric,
       to_timestamp(u.at_ms / 1000.0)
FROM UNNEST($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::bigint[])
     AS u (key, event, content, name, tenant, account, metric, quantity, at_ms)
ON CONFLICT DO NOTHING
RETURNING key

-- A key that is taken ends the transaction: another writer made the entity.
INSERT INTO oncely.entity (key, event, version, tenant, state)
SELECT u.key, u.event, u.version, u.tenant, u.state
FROM UNNEST($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[])
     AS u (key, event, version, tenant, state)

-- Fewer rows than given: another writer made one of the entities.
INSERT INTO oncely.entity (key, event, version, tenant, state)
SELECT u.key, u.event, u.version, u.tenant, u.state
FROM UNNEST($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[])
     AS u (key, event, version, tenant, state)
ON CONFLICT DO NOTHING

-- Versions that were decided while one before them was missing, as far as their entities have not come.
INSERT INTO oncely.ahead (entity, version, connector)
SELECT DISTINCT u.entity, u.version, $3::integer
FROM UNNEST($1::uuid[], $2::bigint[]) AS u (entity, version)
WHERE NOT EXISTS (SELECT FROM oncely.entity AS e WHERE e.key = u.entity AND e.version >= u.version)
ON CONFLICT (entity, version) DO NOTHING

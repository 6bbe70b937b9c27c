-- How far the versions of entities were decided; it only rises.
INSERT INTO oncely.passed AS p (entity, version, connector)
SELECT u.entity, u.version, $3
FROM UNNEST($1::uuid[], $2::bigint[]) AS u (entity, version)
ON CONFLICT (entity) DO UPDATE SET version = excluded.version, noted_at = now(), connector = excluded.connector
WHERE p.version < excluded.version

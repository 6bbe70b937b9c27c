-- How far the versions of entities were decided; it only rises.
INSERT INTO oncely.passed AS p (entity, version)
SELECT u.entity, u.version
FROM UNNEST($1::uuid[], $2::bigint[]) AS u (entity, version)
ON CONFLICT (entity) DO UPDATE SET version = excluded.version, noted_at = now() WHERE p.version < excluded.version

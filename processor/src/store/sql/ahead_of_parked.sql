-- Versions that were parked since one before them was missing, or for want of room, and that nobody wants run any
-- more: from now on they are not missing.
INSERT INTO oncely.ahead (entity, version, connector)
SELECT DISTINCT ON (i.entity, i.version) i.entity, i.version, p.connector
FROM oncely.parked AS p
JOIN oncely.inbox AS i ON i.key = p.event
WHERE p.id = ANY($1::bigint[]) AND p.closed_at IS NOT NULL AND p.reason IN ('version_gap', 'deferred_full')
  AND i.entity IS NOT NULL
  AND NOT EXISTS (SELECT FROM oncely.entity AS e WHERE e.key = i.entity AND e.version >= i.version)
ON CONFLICT (entity, version) DO NOTHING

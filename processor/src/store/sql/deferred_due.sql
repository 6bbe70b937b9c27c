-- Entities of which a deferred event may go: its time has come, or what it waited for, or nobody holds it back any
-- more. What another process has in hand is passed over. `$2`: whether parked records hold later ones back.
WITH due AS (
    SELECT d.entity
    FROM oncely.deferred AS d
    LEFT JOIN oncely.entity AS e ON e.key = d.entity
    LEFT JOIN oncely.passed AS p ON p.entity = d.entity
    WHERE d.connector = $1 AND d.closed_at IS NULL
      AND (d.due_at <= now() OR d.due_at = 'infinity' OR d.version <= greatest(e.version, p.version) + 1)
      AND NOT ($2::boolean AND d.version > coalesce(e.version, -1)
               AND EXISTS (SELECT FROM oncely.parked AS h
                           WHERE h.holds = d.entity AND h.closed_at IS NULL AND h.held_version < d.version))
    ORDER BY d.due_at, d.id
    LIMIT $3
    FOR UPDATE OF d SKIP LOCKED
)
SELECT DISTINCT entity AS "entity!" FROM due

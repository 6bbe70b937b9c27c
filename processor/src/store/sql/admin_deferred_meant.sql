-- Events that are asked for, and before those that go all that wait on their entities with lower versions: these go
-- first. `behind`: the parked record that holds one back that is asked for; then it waits for a word on that one.
WITH asked AS (
    SELECT d.id, d.connector, d.entity, d.version, h.id AS behind, h.kind AS behind_kind
    FROM oncely.deferred AS d
    JOIN oncely.connector AS c ON c.id = d.connector
    LEFT JOIN oncely.entity AS e ON e.key = d.entity
    LEFT JOIN LATERAL (
        SELECT o.id, o.kind FROM oncely.parked AS o
        WHERE o.holds = d.entity AND o.closed_at IS NULL AND o.held_version < d.version
          AND o.held_version > coalesce(e.version, -1)
        ORDER BY o.held_version, o.id
        LIMIT 1) AS h ON true
    WHERE d.closed_at IS NULL
      AND ($1::bigint[] IS NULL OR d.id = ANY($1))
      AND ($2::text IS NULL OR c.name = $2)
      AND ($3::text IS NULL OR d.business_id = $3)
)
SELECT d.id, d.event, d.version, d.business_id, c.name AS connector, a.id IS NOT NULL AS "is_asked!",
       a.behind AS "behind?", a.behind_kind AS "behind_kind?"
FROM oncely.deferred AS d
JOIN oncely.connector AS c ON c.id = d.connector
LEFT JOIN asked AS a ON a.id = d.id
WHERE d.closed_at IS NULL
  AND (a.id IS NOT NULL
       OR EXISTS (SELECT FROM asked AS o
                  WHERE o.entity = d.entity AND o.connector = d.connector AND o.behind IS NULL
                    AND (d.version, d.id) < (o.version, o.id)))
ORDER BY d.entity, d.version, d.id

-- Event bytes and results have a shorter life than keys.
WITH old AS (
    SELECT p.event
    FROM oncely.payload AS p
    JOIN oncely.source AS s ON s.id = p.source
    WHERE s.connector = $1
      AND p.created_at < now() - make_interval(secs => $2::bigint / 1000.0)
      AND NOT EXISTS (SELECT FROM oncely.inbox AS i JOIN oncely.effect AS e ON e.key = ANY(i.effects)
                      WHERE i.key = p.event AND e.settled_at IS NULL)
    LIMIT $3
    FOR UPDATE OF p SKIP LOCKED
)
DELETE FROM oncely.payload AS p USING old WHERE p.event = old.event

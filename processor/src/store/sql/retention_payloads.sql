-- Event bytes have a shorter life than keys, but live as long as an effect may be rendered from them: one that is open,
-- or is opened again with what it comes after, whose letter is open. Looks at some that are older than the retention,
-- from where the last look ended ($4, $5). OFFSET 0 makes the planner look up each event and each effect by its key.
WITH looked AS MATERIALIZED (
    SELECT p.event, p.created_at
    FROM oncely.payload AS p
    WHERE p.created_at >= coalesce($4::timestamptz, '-infinity')
      AND (p.created_at, p.event) > (coalesce($4::timestamptz, '-infinity'), $5::uuid)
      AND p.created_at < now() - make_interval(secs => $2::bigint / 1000.0)
    ORDER BY p.created_at, p.event
    LIMIT $3
), old AS (
    SELECT p.event
    FROM looked
    JOIN oncely.payload AS p ON p.event = looked.event
    JOIN oncely.source AS s ON s.id = p.source
    LEFT JOIN LATERAL (SELECT effects FROM oncely.inbox WHERE key = looked.event OFFSET 0) AS i ON true
    WHERE s.connector = $1
      AND NOT EXISTS (SELECT FROM unnest(i.effects) AS named (key) CROSS JOIN LATERAL (
                          SELECT key, settled_at, after_keys FROM oncely.effect WHERE key = named.key OFFSET 0) AS e
                      WHERE e.settled_at IS NULL OR EXISTS (
                          SELECT FROM oncely.parked AS p
                          WHERE p.effect = ANY(e.key || e.after_keys) AND p.closed_at IS NULL))
    FOR UPDATE OF p SKIP LOCKED
), removed AS (
    DELETE FROM oncely.payload AS p USING old WHERE p.event = old.event
    RETURNING p.event
)
SELECT looked.created_at AS "seen_at!", looked.event AS "key!",
       (SELECT count(*) FROM looked) AS "looked!", (SELECT count(*) FROM removed) AS "removed!"
FROM looked
ORDER BY looked.created_at DESC, looked.event DESC
LIMIT 1

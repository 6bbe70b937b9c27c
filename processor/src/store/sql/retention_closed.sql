-- Looks at some events older than the retention, from where the last look ended ($4, $5), and removes those that are this
-- connector's and of which nothing is open or can be opened again, with what hangs on them. An effect goes with the last
-- event that owes it. Entities stay. The planner expects few rows and would walk through all of them for each: OFFSET 0
-- makes it look up each effect by its key, and IS TRUE each key in a hash table.
WITH looked AS MATERIALIZED (
    SELECT i.key, i.first_seen_at, i.effects
    FROM oncely.inbox AS i
    WHERE i.first_seen_at >= coalesce($4::timestamptz, '-infinity')
      AND (i.first_seen_at, i.key) > (coalesce($4::timestamptz, '-infinity'), $5::uuid)
      AND i.first_seen_at < now() - make_interval(secs => $2::bigint / 1000.0)
    ORDER BY i.first_seen_at, i.key
    LIMIT $3
), old AS (
    -- One to which a replay has added an effect meanwhile is for the next walk.
    SELECT i.key, i.effects
    FROM looked
    JOIN oncely.inbox AS i ON i.key = looked.key
    JOIN oncely.source AS s ON s.id = i.source
    WHERE s.connector = $1
      AND i.effects IS NOT DISTINCT FROM looked.effects
      AND NOT EXISTS (SELECT FROM unnest(i.effects) AS named (key) CROSS JOIN LATERAL (
                          SELECT settled_at FROM oncely.effect WHERE key = named.key OFFSET 0) AS e
                      WHERE e.settled_at IS NULL)
      AND NOT EXISTS (SELECT FROM oncely.parked AS p WHERE p.event = i.key AND p.closed_at IS NULL)
      AND i.outcome <> 'deferred'
    FOR UPDATE OF i SKIP LOCKED
), held AS MATERIALIZED (
    -- The newest rows: an event that shares one at this moment has been counted, or waits, and one that was brought
    -- back at this moment is open.
    SELECT e.key, e.owners, e.settled_at, e.after_keys
    FROM oncely.effect AS e
    WHERE e.key IN (SELECT unnest(old.effects) FROM old)
    ORDER BY e.key
    FOR UPDATE OF e
), needed AS MATERIALIZED (
    -- Open, waited for by what is open, or to be opened again with what it comes after, whose letter is open.
    SELECT held.key
    FROM held
    WHERE held.settled_at IS NULL
       OR held.key IN (SELECT unnest(o.after_keys) FROM oncely.effect AS o
                       WHERE o.settled_at IS NULL AND o.after_keys IS NOT NULL)
       OR EXISTS (SELECT FROM oncely.parked AS p
                  WHERE p.effect = ANY(held.after_keys) AND p.closed_at IS NULL)
), stays AS MATERIALIZED (
    SELECT old.key
    FROM old, unnest(old.effects) AS named (key)
    WHERE (named.key IN (SELECT needed.key FROM needed)) IS TRUE
), closed AS MATERIALIZED (
    SELECT old.key, old.effects
    FROM old
    WHERE old.key NOT IN (SELECT stays.key FROM stays)
), owed AS MATERIALIZED (
    SELECT counted.key, sum(counted.owners) - sum(counted.times) AS left_over
    FROM (SELECT held.key, held.owners, 0 AS times FROM held
          UNION ALL
          SELECT named.key, 0, 1 FROM closed, unnest(closed.effects) AS named (key)) AS counted
    GROUP BY counted.key
    HAVING sum(counted.times) > 0
), shared AS (
    UPDATE oncely.effect AS e SET owners = owed.left_over
    FROM owed WHERE e.key = owed.key AND owed.left_over > 0
), gone AS (
    DELETE FROM oncely.effect AS e USING owed
    WHERE e.key = owed.key AND owed.left_over <= 0
    RETURNING e.key
), attempts AS (
    DELETE FROM oncely.attempt AS a USING gone WHERE a.effect = gone.key
), undoing AS (
    DELETE FROM oncely.compensation AS c USING gone WHERE c.effect = gone.key
), repeats AS (
    DELETE FROM oncely.repeat AS r USING closed WHERE r.key = closed.key
), payloads AS (
    DELETE FROM oncely.payload AS p USING closed WHERE p.event = closed.key
), removed AS (
    DELETE FROM oncely.inbox AS i USING closed WHERE i.key = closed.key
    RETURNING i.key
)
SELECT looked.first_seen_at AS "seen_at!", looked.key AS "key!",
       (SELECT count(*) FROM looked) AS "looked!", (SELECT count(*) FROM removed) AS "removed!"
FROM looked
ORDER BY looked.first_seen_at DESC, looked.key DESC
LIMIT 1

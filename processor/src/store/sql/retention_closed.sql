-- Removes one slice of inbox rows older than the retention, with what hangs on them, only where
-- nothing of the event is open. An effect goes with the last event that owes it. Entities stay.
WITH old AS (
    SELECT i.key, i.effects
    FROM oncely.inbox AS i
    JOIN oncely.source AS s ON s.id = i.source
    WHERE s.connector = $1
      AND i.first_seen_at < now() - make_interval(secs => $2::bigint / 1000.0)
      AND NOT EXISTS (SELECT FROM oncely.effect AS e
                      WHERE e.key = ANY(i.effects) AND e.settled_at IS NULL)
      AND NOT EXISTS (SELECT FROM oncely.parked AS p WHERE p.event = i.key AND p.closed_at IS NULL)
      AND i.outcome <> 'deferred'
    ORDER BY i.first_seen_at
    LIMIT $3
    FOR UPDATE OF i SKIP LOCKED
), owed AS (
    SELECT named.key, count(*) AS times
    FROM old, unnest(old.effects) AS named (key)
    GROUP BY named.key
), held AS MATERIALIZED (
    -- The newest rows: an event that shares one at this moment has been counted, or waits.
    SELECT e.key, e.owners - owed.times AS left_over
    FROM oncely.effect AS e JOIN owed ON owed.key = e.key
    ORDER BY e.key
    FOR UPDATE OF e
), shared AS (
    UPDATE oncely.effect AS e SET owners = held.left_over
    FROM held WHERE e.key = held.key AND held.left_over > 0
), gone AS (
    DELETE FROM oncely.effect AS e USING held
    WHERE e.key = held.key AND held.left_over <= 0
    RETURNING e.key
), attempts AS (
    DELETE FROM oncely.attempt AS a USING gone WHERE a.effect = gone.key
), undoing AS (
    DELETE FROM oncely.compensation AS c USING gone WHERE c.effect = gone.key
), repeats AS (
    DELETE FROM oncely.repeat AS r USING old WHERE r.key = old.key
), payloads AS (
    DELETE FROM oncely.payload AS p USING old WHERE p.event = old.key
)
DELETE FROM oncely.inbox AS i USING old WHERE i.key = old.key

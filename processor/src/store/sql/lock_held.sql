-- Who keeps transactions of workers from tables of the schema, or from rows of them, now or for $1 seconds: a statement
-- that locks a whole table or waits for that, so that all others wait behind it, with whoever is at the root of its own
-- wait; else a transaction of somebody else's that waits for nobody and has rows locked. Locks of single rows are not
-- looked at: they stand for those who wait. What a session does is told to its own role and to pg_read_all_stats.
WITH RECURSIVE locks AS MATERIALIZED (
    SELECT l.pid, c.relname::text AS relation, l.granted,
           l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AS is_whole,
           a.application_name LIKE 'oncely %' AS is_ours, a.xact_start, a.query_start
    FROM pg_locks AS l
    JOIN pg_class AS c ON c.oid = l.relation
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND n.nspname = 'oncely' AND c.relkind = 'r' AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
      AND l.mode <> 'AccessShareLock'
      -- The record of a failover is our own, and short.
      AND NOT (c.relname = 'failover' AND l.mode = 'ExclusiveLock' AND a.application_name LIKE 'oncely %')
), waits AS MATERIALIZED (
    SELECT DISTINCT w.pid, b.pid AS behind
    FROM pg_locks AS w
    CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS b (pid)
    WHERE NOT w.granted
), found AS (
    (SELECT l.relation, l.pid, l.is_whole, l.granted
     FROM locks AS l
     WHERE l.is_whole
     ORDER BY l.granted DESC, l.query_start, l.pid
     LIMIT 1)
    UNION ALL
    (SELECT string_agg(DISTINCT l.relation, ', ' ORDER BY l.relation), l.pid, false, true
     FROM locks AS l
     WHERE NOT l.is_whole AND NOT coalesce(l.is_ours, false)
       AND NOT EXISTS (SELECT FROM waits AS w WHERE w.pid = l.pid)
       AND (EXISTS (SELECT FROM waits AS w WHERE w.behind = l.pid)
            OR coalesce(l.xact_start <= clock_timestamp() - make_interval(secs => $1), true))
     GROUP BY l.pid
     ORDER BY bool_or(EXISTS (SELECT FROM waits AS w WHERE w.behind = l.pid)) DESC, min(l.xact_start), l.pid
     LIMIT 1)
), up (pid) AS (
    SELECT w.behind FROM found AS f JOIN waits AS w ON w.pid = f.pid
    UNION
    SELECT w.behind FROM up JOIN waits AS w ON w.pid = up.pid
)
SELECT f.relation AS "relation!", f.pid AS "pid!", f.is_whole AS "is_whole!",
       coalesce(left(a.query, 200), '') AS "query!", coalesce(a.application_name, '') AS "program!",
       coalesce(a.state, '') AS "state!",
       b.pid AS "behind?", coalesce(b.application_name, '') AS "behind_program!", coalesce(b.state, '') AS "behind_state!",
       coalesce(left(b.query, 200), '') AS "behind_query!"
FROM found AS f
LEFT JOIN pg_stat_activity AS a ON a.pid = f.pid
LEFT JOIN LATERAL (
    SELECT up.pid, s.application_name, s.state, s.query
    FROM up
    LEFT JOIN pg_stat_activity AS s ON s.pid = up.pid
    WHERE f.is_whole AND NOT EXISTS (SELECT FROM waits AS w WHERE w.pid = up.pid)
    ORDER BY s.xact_start, up.pid
    LIMIT 1
) AS b ON true
ORDER BY f.is_whole DESC
LIMIT 1

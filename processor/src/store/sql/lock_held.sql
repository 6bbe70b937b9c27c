-- The statement that keeps transactions of workers from a table of the schema: it holds a lock, or waits for one and is
-- waited for itself. With whom it waits for.
SELECT c.relname::text AS "relation!", l.pid AS "pid!", l.granted AS "granted!",
       coalesce(left(a.query, 200), '') AS "query!", coalesce(a.application_name, '') AS "program!",
       b.pid AS "behind?", coalesce(b.state, '') AS "behind_state!", coalesce(left(b.query, 200), '') AS "behind_query!"
FROM pg_locks AS l
JOIN pg_class AS c ON c.oid = l.relation
JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
LEFT JOIN pg_stat_activity AS b ON b.pid = (pg_blocking_pids(l.pid))[1]
WHERE n.nspname = 'oncely' AND c.relkind = 'r' AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
  -- The record of a failover is our own, and short.
  AND NOT (c.relname = 'failover' AND l.mode = 'ExclusiveLock' AND a.application_name LIKE 'oncely %')
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
ORDER BY l.granted DESC, a.query_start, l.pid
LIMIT 1

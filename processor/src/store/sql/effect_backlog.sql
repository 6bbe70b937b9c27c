-- How many effects of a connector will go without anybody's help: neither held, nor behind one that is, nor of a
-- name that nobody runs any more. Counted up to a bound, by indexes alone: those with a time are waiting or unknown,
-- those with a worker are claimed, and the rest is blocked.
WITH mine AS MATERIALIZED (SELECT unnest(effects) AS name FROM oncely.connector WHERE id = $1)
SELECT count(*) AS "open!"
FROM (SELECT FROM oncely.effect AS e
      WHERE e.connector = $1 AND e.due_at IS NOT NULL AND e.name = ANY (ARRAY(SELECT name FROM mine))
      UNION ALL
      SELECT FROM oncely.effect AS e
      WHERE e.connector = $1 AND e.worker IS NOT NULL AND e.name = ANY (ARRAY(SELECT name FROM mine))
      UNION ALL
      SELECT FROM oncely.effect AS e
      WHERE e.connector = $1 AND e.status = 'waiting' AND e.due_at IS NULL
        AND e.name = ANY (ARRAY(SELECT name FROM mine))
        AND NOT EXISTS (SELECT FROM oncely.effect AS h WHERE h.lane = e.lane AND h.status = 'held')
      LIMIT $2) AS open

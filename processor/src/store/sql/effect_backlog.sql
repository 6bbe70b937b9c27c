-- How many effects of a connector will go without anybody's help: neither held, nor behind one that is, nor of a
-- name that nobody runs any more. Counted up to a bound.
SELECT count(*) AS "open!"
FROM (SELECT FROM oncely.effect AS e
      WHERE e.connector = $1 AND e.settled_at IS NULL AND e.status <> 'held'
        AND NOT (e.status = 'waiting' AND e.due_at IS NULL
                 AND EXISTS (SELECT FROM oncely.effect AS h WHERE h.lane = e.lane AND h.status = 'held'))
        AND e.name = ANY ((SELECT effects FROM oncely.connector WHERE id = $1)::text[])
      LIMIT $2) AS open

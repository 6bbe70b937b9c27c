-- Lanes with effects that wait although nothing is left to wait for. Settling wakes what it can see;
-- this finds the rest: a predecessor in another lane, a person's word.
SELECT DISTINCT e.lane
FROM oncely.effect AS e
WHERE e.connector = $1 AND e.status = 'waiting' AND e.due_at IS NULL
  AND NOT EXISTS (SELECT FROM oncely.effect AS o
                  WHERE o.lane = e.lane AND o.settled_at IS NULL
                    AND o.version < e.version AND o.event <> e.event)
  AND NOT EXISTS (SELECT FROM oncely.effect AS p
                  WHERE p.key = ANY(e.after_keys) AND p.settled_at IS NULL)
LIMIT $2

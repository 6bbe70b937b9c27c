-- Whether effects that records wait for still hold these back.
SELECT e.key, e.status,
       (e.status = 'held' OR (e.status = 'waiting' AND e.due_at IS NULL AND EXISTS (
           SELECT FROM oncely.effect AS h
           WHERE h.lane = e.lane AND h.settled_at IS NULL AND h.status = 'held'
             AND (h.version < e.version OR h.key = ANY(e.after_keys))))) AS "behind_held!"
FROM oncely.effect AS e
WHERE e.key = ANY($1::uuid[])

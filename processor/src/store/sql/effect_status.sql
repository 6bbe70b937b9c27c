-- Whether effects that records wait for still hold these back. A blocked one may wait for a held one
-- over others, and those may stand in other lanes. Held ones are rare, so whether there are any is asked
-- first, and once. OFFSET 0 keeps the planner from walking through all open effects for each key.
SELECT e.key, e.status,
       (e.status = 'held' OR (
        e.status = 'waiting' AND e.due_at IS NULL
        AND EXISTS (SELECT FROM oncely.effect WHERE status = 'held')
        AND (EXISTS (
           SELECT FROM oncely.effect AS h
           WHERE h.lane = e.lane AND h.status = 'held' AND h.version < e.version) OR EXISTS (
           WITH RECURSIVE before (key) AS (
               SELECT unnest(e.after_keys)
               UNION
               SELECT unnest(b.after_keys)
               FROM before CROSS JOIN LATERAL (
                   SELECT after_keys, settled_at FROM oncely.effect
                   WHERE key = before.key OFFSET 0) AS b
               WHERE b.settled_at IS NULL)
           SELECT FROM before CROSS JOIN LATERAL (
               SELECT status FROM oncely.effect WHERE key = before.key OFFSET 0) AS h
           WHERE h.status = 'held')))) AS "behind_held!"
FROM oncely.effect AS e
WHERE e.key = ANY($1::uuid[])

-- What waits behind effects of its lane that are held by now. OFFSET 0 keeps the planner from walking
-- through all open effects instead of each lane's.
SELECT e.key
FROM UNNEST($1::uuid[], $2::bigint[]) AS h (lane, version)
CROSS JOIN LATERAL (SELECT key, status, due_at FROM oncely.effect
                    WHERE lane = h.lane AND version > h.version AND settled_at IS NULL
                    OFFSET 0) AS e
WHERE e.status = 'waiting' AND e.due_at IS NULL
LIMIT $3

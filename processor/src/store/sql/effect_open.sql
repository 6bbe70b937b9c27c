-- Of some lanes, the effects of the lowest version that is not final: nothing else can go, and whatever
-- comes later waits for them. A lane may have thousands behind these. OFFSET 0 keeps the planner from
-- walking through all open effects instead of each lane's.
SELECT e.key, e.lane, e.event, e.version, e.status, e.after_keys, e.name, e.connector,
       (e.status = 'waiting' AND e.due_at IS NULL) AS "blocked!"
FROM UNNEST($1::uuid[]) AS l (lane)
CROSS JOIN LATERAL (SELECT version FROM oncely.effect
                    WHERE lane = l.lane AND settled_at IS NULL
                    ORDER BY version
                    LIMIT 1) AS lowest
CROSS JOIN LATERAL (SELECT * FROM oncely.effect
                    WHERE lane = l.lane AND version = lowest.version AND settled_at IS NULL
                    OFFSET 0) AS e

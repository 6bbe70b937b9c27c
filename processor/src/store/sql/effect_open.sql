-- Of some lanes, the effects of the lowest version that is not final: nothing else can go, and whatever
-- comes later waits for them. A lane may have thousands behind these.
SELECT e.key, e.lane, e.event, e.version, e.status, e.after_keys, e.name, e.connector,
       (e.status = 'waiting' AND e.due_at IS NULL) AS "blocked!"
FROM UNNEST($1::uuid[]) AS l (lane)
CROSS JOIN LATERAL (SELECT * FROM oncely.effect
                    WHERE lane = l.lane AND settled_at IS NULL
                    ORDER BY version
                    FETCH FIRST ROW WITH TIES) AS e

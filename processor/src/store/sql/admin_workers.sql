-- Workers that have not ended, eldest first, with the claims that each holds.
SELECT w.id, w.host, w.dead_at IS NOT NULL AS "is_dead!",
       (SELECT count(*) FROM oncely.effect AS e WHERE e.worker = w.id) AS "claims!"
FROM oncely.worker AS w
WHERE w.ended_at IS NULL
ORDER BY w.started_at, w.id

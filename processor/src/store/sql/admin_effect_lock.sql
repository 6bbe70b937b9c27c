-- The row that a person is about to change; the lane is locked already. A worker that is dead or ended
-- stays so.
SELECT e.status, e.attempts, e.takeovers, e.was_unknown, e.note, e.due_at IS NULL AS "blocked!",
       e.worker, e.fence,
       EXISTS (SELECT FROM oncely.worker AS w
               WHERE w.id = e.worker AND (w.dead_at IS NOT NULL OR w.ended_at IS NOT NULL)) AS "dead!",
       NOT EXISTS (SELECT FROM oncely.wired AS w
                   WHERE w.connector = e.connector AND w.effect = e.name) AS "orphaned!",
       EXISTS (SELECT FROM oncely.connector AS c
               WHERE c.id = e.connector AND e.name = ANY(c.lookups)) AS "asked!"
FROM oncely.effect AS e
WHERE e.key = $1
FOR UPDATE OF e

-- Circuits that are closed again, and those of workers that are gone.
DELETE FROM oncely.circuit AS c
WHERE c.connector = $1
  AND (c.worker = $2 AND NOT c.effect = ANY($3)
       OR NOT EXISTS (SELECT FROM oncely.worker AS w
                      WHERE w.id = c.worker AND w.dead_at IS NULL AND w.ended_at IS NULL))

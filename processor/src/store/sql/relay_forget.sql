-- Relays whose workers are gone.
DELETE FROM oncely.relay AS r
WHERE r.connector = $1
  AND NOT EXISTS (SELECT FROM oncely.worker AS w
                  WHERE w.id = r.worker AND w.dead_at IS NULL AND w.ended_at IS NULL)

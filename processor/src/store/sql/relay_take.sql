-- Takes slices that nobody has, or whose worker is dead or ended.
WITH free AS (
    SELECT s.slice
    FROM oncely.slice AS s
    WHERE s.connector = $1
      AND NOT EXISTS (SELECT FROM oncely.worker AS w
                      WHERE w.id = s.worker AND w.dead_at IS NULL AND w.ended_at IS NULL)
    ORDER BY s.slice
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
UPDATE oncely.slice AS s
SET worker = $2
FROM free
WHERE s.connector = $1 AND s.slice = free.slice
  AND EXISTS (SELECT FROM oncely.worker AS w
              WHERE w.id = $2 AND w.dead_at IS NULL AND w.ended_at IS NULL)
RETURNING s.slice

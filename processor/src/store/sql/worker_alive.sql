SELECT 1 AS "one!" FROM oncely.worker WHERE id = $1 AND dead_at IS NULL AND ended_at IS NULL

UPDATE oncely.worker SET ended_at = now()
WHERE id = $1 AND dead_at IS NULL AND ended_at IS NULL

-- No row: this worker was declared dead.
UPDATE oncely.worker SET heartbeat_at = now()
WHERE id = $1 AND dead_at IS NULL AND ended_at IS NULL

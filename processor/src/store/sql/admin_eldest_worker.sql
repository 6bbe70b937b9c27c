-- The living worker that has been there longest counts what is open; the others stay silent.
SELECT id FROM oncely.worker
WHERE dead_at IS NULL AND ended_at IS NULL
ORDER BY started_at, id
LIMIT 1

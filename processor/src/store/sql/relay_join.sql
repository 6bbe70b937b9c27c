-- This worker relays for the connector, as long as it lives.
INSERT INTO oncely.relay (connector, worker)
SELECT $1, w.id FROM oncely.worker AS w
WHERE w.id = $2 AND w.dead_at IS NULL AND w.ended_at IS NULL
ON CONFLICT DO NOTHING

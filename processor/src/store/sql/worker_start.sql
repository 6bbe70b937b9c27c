INSERT INTO oncely.worker (id, lease_ms, host) VALUES ($1, $2, $3)

-- Declares workers dead whose heartbeat is older than their lease. Only then are their claims taken.
UPDATE oncely.worker SET dead_at = now()
WHERE dead_at IS NULL AND ended_at IS NULL AND id <> $1
  AND heartbeat_at < now() - make_interval(secs => lease_ms / 1000.0)
RETURNING id

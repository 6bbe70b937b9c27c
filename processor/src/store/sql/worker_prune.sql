-- Forgets workers that ended or died a week ago and left no claim behind.
DELETE FROM oncely.worker AS w
WHERE coalesce(w.dead_at, w.ended_at) < now() - interval '7 days'
  AND NOT EXISTS (SELECT FROM oncely.effect AS e WHERE e.worker = w.id)

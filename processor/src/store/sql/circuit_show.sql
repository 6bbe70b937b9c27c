-- Circuits that a worker finds open. One that stays open keeps its time.
INSERT INTO oncely.circuit (worker, connector, effect, cause)
SELECT $2, $1, u.effect, u.cause
FROM UNNEST($3::text[], $4::text[]) AS u (effect, cause)
ON CONFLICT (connector, effect, worker) DO UPDATE SET cause = EXCLUDED.cause

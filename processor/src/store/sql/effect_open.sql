-- The effects of some lanes that are not final, as far as order cares.
SELECT key, lane, event, version, status, after_keys, name, connector,
       (status = 'waiting' AND due_at IS NULL) AS "blocked!"
FROM oncely.effect
WHERE lane = ANY($1::uuid[]) AND settled_at IS NULL

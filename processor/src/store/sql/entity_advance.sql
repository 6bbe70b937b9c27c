-- The rows are locked by this transaction; the versions were compared in memory.
UPDATE oncely.entity AS e
SET event = u.event, version = u.version, state = u.state, updated_at = now()
FROM UNNEST($1::uuid[], $2::uuid[], $3::bigint[], $4::text[]) AS u (key, event, version, state)
WHERE e.key = u.key AND e.version < u.version

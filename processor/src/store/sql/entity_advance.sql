-- Fewer rows than given: another writer moved one of the entities since it was read.
UPDATE oncely.entity AS e
SET event = u.event, version = u.version, state = u.state, updated_at = now()
FROM UNNEST($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::bigint[])
     AS u (key, event, version, state, was)
WHERE e.key = u.key AND e.version = u.was

-- Events that waited once. What was passed goes when its entity is further.
WITH old AS (
    SELECT id, entity FROM oncely.deferred
    WHERE connector = $1 AND closed_at < now() - make_interval(secs => $2::bigint / 1000.0)
    LIMIT $3
    FOR UPDATE SKIP LOCKED
), passed AS (
    DELETE FROM oncely.passed AS p
    USING old, oncely.entity AS e
    WHERE p.entity = old.entity AND e.key = p.entity AND e.version >= p.version
)
DELETE FROM oncely.deferred AS d USING old WHERE d.id = old.id

-- Events that waited once.
WITH old AS (
    SELECT id FROM oncely.deferred
    WHERE connector = $1 AND closed_at < now() - make_interval(secs => $2::bigint / 1000.0)
    LIMIT $3
    FOR UPDATE SKIP LOCKED
)
DELETE FROM oncely.deferred AS d USING old WHERE d.id = old.id

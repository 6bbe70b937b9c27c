-- What is noted of versions that are not missing, where nobody can ask for it any more: the entity has come as far, or
-- never came to be and all its events are forgotten; versions ahead of one that is too old by now to come. A record that
-- is parked still is not forgotten, however old. Keys are
-- as good as random: each look takes some from any place, and the first ones.
WITH place AS MATERIALIZED (
    SELECT gen_random_uuid() AS entity
), passed AS MATERIALIZED (
    (SELECT p.entity, p.version FROM oncely.passed AS p
     WHERE p.entity >= (SELECT entity FROM place) ORDER BY p.entity LIMIT $3)
    UNION
    (SELECT p.entity, p.version FROM oncely.passed AS p ORDER BY p.entity LIMIT $3)
), gone AS (
    DELETE FROM oncely.passed AS p
    USING passed
    LEFT JOIN oncely.entity AS e ON e.key = passed.entity
    WHERE p.entity = passed.entity AND p.version = passed.version
      AND (e.version >= p.version
           OR (e.key IS NULL AND p.connector = $1
               AND p.noted_at < now() - make_interval(secs => $2::bigint / 1000.0)
               AND NOT EXISTS (SELECT FROM oncely.parked AS o
                               WHERE o.entity = p.entity AND o.closed_at IS NULL)))
), ahead AS MATERIALIZED (
    SELECT a.entity, a.version FROM oncely.ahead AS a
    WHERE a.connector = $1 AND a.noted_at < now() - make_interval(secs => $2::bigint / 1000.0)
    ORDER BY a.noted_at
    LIMIT $3
)
DELETE FROM oncely.ahead AS a USING ahead WHERE a.entity = ahead.entity AND a.version = ahead.version

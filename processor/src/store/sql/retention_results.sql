-- Requests and results have a shorter life than keys, but a result lives as long as an open effect may read it, one
-- that may have to be undone ($6) as long as its effect is remembered, and a request as long as its effect may be opened
-- again: its letter, or that of what it comes after, is open. Looks at what some events owe, from where the last
-- look ended ($4, $5).
WITH looked AS MATERIALIZED (
    SELECT i.key, i.first_seen_at, i.effects
    FROM oncely.inbox AS i
    WHERE i.first_seen_at >= coalesce($4::timestamptz, '-infinity')
      AND (i.first_seen_at, i.key) > (coalesce($4::timestamptz, '-infinity'), $5::uuid)
      AND i.first_seen_at < now() - make_interval(secs => $2::bigint / 1000.0)
    ORDER BY i.first_seen_at, i.key
    LIMIT $3
), old AS MATERIALIZED (
    SELECT e.key
    FROM oncely.effect AS e
    WHERE e.key = ANY(ARRAY(SELECT unnest(looked.effects) FROM looked))
      AND e.connector = $1
      AND e.settled_at IS NOT NULL
      AND (e.request IS NOT NULL OR (e.result IS NOT NULL AND e.name <> ALL($6::text[])))
    FOR UPDATE SKIP LOCKED
), cleared AS (
    UPDATE oncely.effect AS e
    SET request = NULL, result = CASE WHEN e.name = ANY($6::text[]) THEN e.result END
    FROM old
    WHERE e.key = old.key
      AND e.key NOT IN (SELECT unnest(o.after_keys) FROM oncely.effect AS o
                        WHERE o.settled_at IS NULL AND o.after_keys IS NOT NULL)
      AND NOT EXISTS (SELECT FROM oncely.parked AS p
                      WHERE p.effect = ANY(e.key || e.after_keys) AND p.closed_at IS NULL)
    RETURNING e.key
)
SELECT looked.first_seen_at AS "seen_at!", looked.key AS "key!",
       (SELECT count(*) FROM looked) AS "looked!", (SELECT count(*) FROM cleared) AS "removed!"
FROM looked
ORDER BY looked.first_seen_at DESC, looked.key DESC
LIMIT 1

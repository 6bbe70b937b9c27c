-- Requests and results have a shorter life than keys, but a result lives as long as an open effect
-- may read it, and one that may have to be undone as long as its effect is remembered.
UPDATE oncely.effect AS e
SET request = NULL, result = CASE WHEN name = ANY($4::text[]) THEN result END
FROM (SELECT key FROM oncely.effect
      WHERE connector = $1
        AND created_at < now() - make_interval(secs => $2::bigint / 1000.0)
        AND settled_at < now() - make_interval(secs => $2::bigint / 1000.0)
        AND (request IS NOT NULL OR (result IS NOT NULL AND name <> ALL($4::text[])))
        AND key NOT IN (SELECT unnest(o.after_keys) FROM oncely.effect AS o
                        WHERE o.settled_at IS NULL AND o.after_keys IS NOT NULL)
      LIMIT $3
      FOR UPDATE SKIP LOCKED) AS old
WHERE e.key = old.key

-- Entities of which something may be done and not found under its key, with the effect that it is ($5), or with none: any
-- may be, for the entity is older than ids are remembered.
SELECT e.key AS "key!", NULL::integer AS "effect?"
FROM oncely.entity AS e
WHERE e.key = ANY($1::uuid[]) AND e.created_at < now() - make_interval(secs => $2::bigint / 1000.0)
UNION ALL
-- It lived while keys of the effect were made by other words, or while the effect was called by a name that is gone: one
-- that went when this one came. What came after this one, or went long after it came, is another effect; an hour is for a
-- deploy whose old and new processes run side by side. Other connectors of the scope that run have rules of their own.
-- Workers renew theirs twice a minute.
SELECT e.key, u.place
FROM oncely.entity AS e
CROSS JOIN UNNEST($5::integer[], $6::text[], $7::uuid[]) AS u (place, effect, digest)
WHERE e.key = ANY($1::uuid[])
  AND EXISTS (
    SELECT FROM oncely.key_rule AS r
    JOIN oncely.connector AS c ON c.id = r.connector
    WHERE c.scope = $3 AND r.effect <> '' AND e.created_at < r.seen_at + interval '2 minutes'
      AND (c.id = $4 OR c.seen_at < now() - interval '2 minutes')
      AND CASE WHEN r.effect = u.effect THEN r.digest <> u.digest
               ELSE r.effect <> ALL($8::text[]) AND NOT EXISTS (
                    SELECT FROM oncely.key_rule AS own
                    WHERE own.connector = $4 AND own.effect = u.effect AND own.digest = u.digest
                      AND (own.first_at <= r.first_at
                           OR own.first_at < least(e.created_at, r.seen_at - interval '1 hour'))) END)

-- Connectors that this one may be by another name, the last seen first: nothing is on record under its scope, theirs is no
-- file that is given with it ($3), and they have read one of its topics, in its group or with effects of its ids. Of one
-- that runs, all of its effects are to be here: others that run beside it may have one of a name. What it did longer ago
-- than ids are remembered comes again no more, and one that began just now beside it, as in a new environment, has done
-- nothing yet. The likeliest is the one of its group, then the one with most of its effects.
SELECT c.name, c.scope, c.group_name, c.seen_at, c.effects,
       (c.seen_at > now() - interval '2 minutes') AS "runs!"
FROM oncely.connector AS c
WHERE c.scope <> $2 AND c.name <> ALL($3::text[]) AND cardinality(c.effects) > 0
  AND c.seen_at > now() - make_interval(secs => $1::bigint / 1000.0)
  AND c.registered_at < now() - interval '10 minutes'
  AND NOT EXISTS (SELECT FROM oncely.connector AS own WHERE own.scope = $2)
  AND EXISTS (SELECT FROM oncely.source AS s WHERE s.connector = c.id AND s.topic = ANY($4::text[]))
  AND (c.group_name = $5 OR CASE WHEN c.seen_at > now() - interval '2 minutes' THEN c.effects <@ $6::text[]
                                 ELSE c.effects && $6::text[] END)
ORDER BY c.group_name = $5 DESC,
         (SELECT count(*) FROM unnest(c.effects) AS own (id) WHERE own.id = ANY($6::text[])) DESC,
         c.seen_at DESC
LIMIT 1

-- Whether events of a scope may be done although nothing is on record of them: a failover may have lost it, and not
-- all that lay in the topics by then is decided again. A position of this connector says so until it is read so far,
-- or accepted by a person; that of another one of the scope if it ran while something may have been lost, and for a
-- day if it runs no more. `over`: it stays as it is now, until the next failover; rows that were lost may be made
-- anew for a while.
WITH last AS (SELECT at, lost_since FROM oncely.failover ORDER BY number DESC LIMIT 1),
open AS (
    SELECT FROM oncely.in_doubt AS d, last
    WHERE d.scope = $1
      AND CASE WHEN d.connector = $2 THEN d.cluster_id = $3 AND d.topic = ANY($4::text[])
               ELSE d.seen_at > last.lost_since - interval '10 minutes'
                AND (d.seen_at > now() - interval '2 minutes' OR last.at > now() - interval '1 day') END
),
unread AS (
    SELECT FROM UNNEST($4::text[]) AS t (topic)
    WHERE NOT EXISTS (SELECT FROM oncely.progress AS p, oncely.connector AS c
                      WHERE c.id = $2 AND p.group_name = c.group_name AND p.cluster_id = $3 AND p.topic = t.topic)
),
fresh AS (
    SELECT FROM oncely.failover WHERE NOT lossless AND at > now() - interval '10 minutes'
)
SELECT EXISTS (SELECT FROM open) OR (EXISTS (SELECT FROM fresh) AND EXISTS (SELECT FROM unread)) AS "doubt!",
       NOT EXISTS (SELECT FROM open) AND NOT EXISTS (SELECT FROM fresh) AS "over!"

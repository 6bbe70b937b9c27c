-- Open parked rows that a person means, oldest first, with what is to be known before anything is done to them.
-- A filter that is NULL takes everything.
SELECT p.id, p.reason, p.event, p.effect, p.tenant, p.business_id, p.detail, p.redrives,
       p.redrive_at IS NOT NULL AS "wanted!", c.name AS connector, c.redrives_max,
       s.topic AS "topic?", p.record_partition, p.record_offset,
       e.name AS "effect_name?", e.lane AS "lane?", e.lane = e.event AS "is_event?",
       p.failover IS NOT NULL OR coalesce(e.was_unknown, false) AS "suspect!",
       CASE WHEN p.effect IS NULL
            THEN c.seen_at > now() - interval '2 minutes'
              OR EXISTS (SELECT FROM oncely.wired AS w WHERE w.connector = c.id)
            ELSE EXISTS (SELECT FROM oncely.wired AS w WHERE w.connector = e.connector AND w.effect = e.name)
       END AS "wired!"
FROM oncely.parked AS p
JOIN oncely.connector AS c ON c.id = p.connector
LEFT JOIN oncely.source AS s ON s.id = p.source
LEFT JOIN oncely.effect AS e ON e.key = p.effect
WHERE p.closed_at IS NULL AND p.kind = $1
  AND ($2::bigint[] IS NULL OR p.id = ANY($2))
  AND ($3::text IS NULL OR c.name = $3)
  AND ($4::text IS NULL OR p.reason = $4)
  AND ($5::text IS NULL OR p.business_id = $5)
  AND ($6::text IS NULL OR e.name = $6)
  AND ($7::bigint IS NULL OR p.parked_at > now() - make_interval(secs => $7::bigint / 1000.0))
ORDER BY p.id
LIMIT $8

-- The next records of each slice, oldest first, as far as their bytes fit. Whose sequence has a held record
-- before it waits for a person.
SELECT w.id AS "id!", w.message AS "message!", w.sequence AS "sequence!", w.slice AS "slice!",
       w.topic AS "topic!", w.parked AS "parked?", w.lane AS "lane?", w.tenant AS "tenant?", w.business_id AS "business_id?",
       w.name AS "name?", w.request AS "request?"
FROM (SELECT o.id, o.message, o.sequence, o.slice, o.topic, o.parked, e.lane, e.tenant, e.business_id,
             e.name, e.request,
             sum(coalesce(octet_length(e.request), 0) + coalesce(octet_length(p.value), 0)) OVER (ORDER BY o.id) AS bytes,
             row_number() OVER (ORDER BY o.id) AS place
      FROM UNNEST($2::smallint[]) AS s (slice)
      CROSS JOIN LATERAL (
          SELECT n.*
          FROM oncely.outbox AS n
          WHERE n.connector = $1 AND n.slice = s.slice AND n.status = 'waiting'
            AND n.id <> ALL($3::bigint[]) AND n.sequence <> ALL($4::uuid[])
            AND NOT EXISTS (SELECT FROM oncely.outbox AS h
                            WHERE h.status = 'held' AND h.sequence = n.sequence AND h.id < n.id)
          ORDER BY n.id
          LIMIT $5) AS o
      LEFT JOIN oncely.effect AS e ON e.key = o.message AND o.parked IS NULL
      LEFT JOIN oncely.parked AS p ON p.id = o.parked) AS w
WHERE w.bytes <= $6 OR w.place = 1
ORDER BY w.id

-- How many records of the outbox pass the filter of the list, counted so far.
SELECT count(*) AS "count!"
FROM (SELECT
      FROM oncely.outbox AS o
      LEFT JOIN oncely.connector AS c ON c.id = o.connector
      WHERE ($1::text[] IS NULL OR o.status = ANY($1))
        AND ($2::text IS NULL OR c.name = $2)
        AND ($3::text IS NULL OR o.topic = $3)
        AND ($4::bigint IS NULL OR o.id = $4)
      LIMIT $5) AS found

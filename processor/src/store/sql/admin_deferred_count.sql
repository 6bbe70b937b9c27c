-- How many events pass the filter of the list, counted so far.
SELECT count(*) AS "count!"
FROM (SELECT
      FROM oncely.deferred AS d
      LEFT JOIN oncely.connector AS c ON c.id = d.connector
      WHERE ($1::text IS NULL OR c.name = $1)
        AND ($2::text IS NULL OR d.business_id = $2)
        AND ($3::uuid IS NULL OR d.event = $3)
        AND ($4::boolean OR d.closed_at IS NULL)
      LIMIT $5) AS found

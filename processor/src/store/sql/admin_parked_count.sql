-- How many parked rows pass the filter of the list, counted so far.
SELECT count(*) AS "count!"
FROM (SELECT
      FROM oncely.parked AS p
      LEFT JOIN oncely.connector AS c ON c.id = p.connector
      WHERE p.kind = $1 AND ($6::boolean OR p.closed_at IS NULL)
        AND ($2::text IS NULL OR c.name = $2)
        AND ($3::text IS NULL OR p.reason = $3)
        AND ($4::text IS NULL OR p.business_id = $4)
      LIMIT $5) AS found

-- How many effects pass the filter of the list, counted so far.
SELECT count(*) AS "count!"
FROM (SELECT
      FROM oncely.effect AS e
      LEFT JOIN oncely.connector AS c ON c.id = e.connector
      WHERE ($1::text[] IS NULL OR e.status = ANY($1)
             OR $9::boolean AND e.status IN ('waiting', 'unknown') AND coalesce(
                 (SELECT a.outcome = 'halted' FROM oncely.attempt AS a WHERE a.effect = e.key AND NOT a.evidence
                  ORDER BY a.fence DESC LIMIT 1), false))
        AND (NOT $2::boolean OR e.settled_at IS NULL)
        AND ($3::text IS NULL OR c.name = $3)
        AND ($4::text IS NULL OR e.name = $4)
        AND ($5::text IS NULL OR e.tenant = $5)
        AND ($6::text IS NULL OR e.business_id = $6)
        AND (NOT $8::boolean OR e.settled_at IS NULL AND NOT EXISTS (
                 SELECT FROM oncely.wired AS w WHERE w.connector = e.connector AND w.effect = e.name))
        AND ($10::timestamptz IS NULL OR e.created_at >= $10)
        AND ($11::timestamptz IS NULL OR e.created_at < $11)
        AND ($12::timestamptz IS NULL OR e.last_sent_at >= $12)
        AND ($13::timestamptz IS NULL OR e.last_sent_at < $13)
        AND (NOT $14::boolean OR e.settled_at IS NULL AND e.first_sent_at IS NULL AND NOT e.was_unknown
             AND e.due_at IS DISTINCT FROM 'infinity')
      LIMIT $7) AS found

-- Held records that pass the filter wait to be sent again, in their old places, and so do their effects.
WITH again AS (
    UPDATE oncely.outbox AS o
    SET status = 'waiting', note = NULL
    WHERE o.status = 'held'
      AND ($1::text IS NULL OR EXISTS (SELECT FROM oncely.connector AS c
                                       WHERE c.id = o.connector AND c.name = $1))
      AND ($2::text IS NULL OR o.topic = $2)
      AND ($3::bigint IS NULL OR o.id = $3)
    RETURNING o.id, o.message, o.topic, o.parked
), effects AS (
    UPDATE oncely.effect AS e
    SET status = 'waiting', due_at = 'infinity', note = NULL
    FROM again
    WHERE e.key = again.message AND again.parked IS NULL AND e.status = 'held'
)
SELECT id AS "id!", message AS "message!", topic AS "topic!", parked FROM again ORDER BY id

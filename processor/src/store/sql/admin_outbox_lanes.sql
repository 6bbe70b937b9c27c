-- Lanes of the effects of held records that pass the filter, and whether each is an event without an entity.
SELECT DISTINCT e.lane, e.lane = e.event AS "is_event!"
FROM oncely.outbox AS o
JOIN oncely.effect AS e ON e.key = o.message
LEFT JOIN oncely.connector AS c ON c.id = o.connector
WHERE o.status = 'held' AND o.parked IS NULL
  AND ($1::text IS NULL OR c.name = $1)
  AND ($2::text IS NULL OR o.topic = $2)
  AND ($3::bigint IS NULL OR o.id = $3)
ORDER BY e.lane

-- Records of the outbox, newest first. A filter that is NULL takes everything.
SELECT o.id, o.message, c.name AS "connector?", o.topic, o.status, o.attempts, o.created_at, o.finished_at,
       o.sent_partition, o.sent_offset, o.parked, o.note,
       e.name AS "effect?", e.tenant AS "tenant?", e.business_id AS "business_id?"
FROM oncely.outbox AS o
LEFT JOIN oncely.connector AS c ON c.id = o.connector
LEFT JOIN oncely.effect AS e ON e.key = o.message AND o.parked IS NULL
WHERE ($1::text[] IS NULL OR o.status = ANY($1))
  AND ($2::text IS NULL OR c.name = $2)
  AND ($3::text IS NULL OR o.topic = $3)
  AND ($4::bigint IS NULL OR o.id = $4)
ORDER BY o.id DESC
LIMIT $5

-- Their time has come, by a person's word. Those behind a parked record wait for a word on that one.
UPDATE oncely.deferred AS d
SET due_at = '-infinity'
FROM oncely.connector AS c
WHERE c.id = d.connector AND d.closed_at IS NULL AND d.due_at < 'infinity'
  AND ($1::bigint[] IS NULL OR d.id = ANY($1))
  AND ($2::text IS NULL OR c.name = $2)
  AND ($3::text IS NULL OR d.business_id = $3)
RETURNING d.id, d.event, d.version, d.business_id, c.name AS connector

-- Events that wait, in the order in which they may go; closed ones as well where asked for.
SELECT d.id, d.deferred_at, CASE WHEN isfinite(d.due_at) THEN d.due_at WHEN d.due_at < now() THEN d.deferred_at END AS due_at, d.cause, d.version, d.tenant,
       d.business_id, d.entity, s.topic AS "topic?", d.record_partition, d.record_offset, d.closed_at, d.closed_as,
       d.escalated, c.name AS "connector?", oncely.reached(d.entity) AS "reached?", h.id AS "behind?", h.kind AS "behind_kind?"
FROM oncely.deferred AS d
LEFT JOIN oncely.connector AS c ON c.id = d.connector
LEFT JOIN oncely.source AS s ON s.id = d.source
LEFT JOIN oncely.entity AS e ON e.key = d.entity
LEFT JOIN LATERAL (
    SELECT o.id, o.kind FROM oncely.parked AS o
    WHERE o.holds = d.entity AND o.closed_at IS NULL AND o.held_version < d.version AND d.closed_at IS NULL
      AND o.held_version > coalesce(e.version, -1)
    ORDER BY o.held_version, o.id
    LIMIT 1) AS h ON true
WHERE ($1::text IS NULL OR c.name = $1)
  AND ($2::text IS NULL OR d.business_id = $2)
  AND ($3::uuid IS NULL OR d.event = $3)
  AND ($4::boolean OR d.closed_at IS NULL)
ORDER BY d.closed_at DESC NULLS FIRST, d.due_at, d.entity, d.version, d.id
LIMIT $5

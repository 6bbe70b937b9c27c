-- Effects for people, newest or oldest first. A filter that is NULL takes everything.
SELECT e.key, e.event, e.lane, c.name AS "connector?", e.name, e.status, e.tenant, e.business_id,
       e.version, e.fence, e.attempts, e.failures, e.lookups, e.takeovers, e.was_unknown, e.suspect, e.status_code, e.note, e.created_at,
       NULLIF(e.due_at, 'infinity') AS due_at, e.first_sent_at, e.last_sent_at, e.settled_at, e.after_keys,
       e.settled_at IS NULL AND coalesce(
           (SELECT a.outcome = 'halted' FROM oncely.attempt AS a WHERE a.effect = e.key AND NOT a.evidence
            ORDER BY a.fence DESC LIMIT 1), false) AS "halted!",
       e.settled_at IS NULL AND NOT EXISTS (
           SELECT FROM oncely.wired AS w WHERE w.connector = e.connector AND w.effect = e.name) AS "orphaned!",
       (SELECT max(o.cause) FROM oncely.circuit AS o
        JOIN oncely.worker AS w ON w.id = o.worker AND w.dead_at IS NULL AND w.ended_at IS NULL
        WHERE o.connector = e.connector AND o.effect = e.name AND e.status IN ('waiting', 'unknown')
          AND e.due_at <= now()) AS "circuit?",
       (SELECT h.key FROM oncely.effect AS h
        WHERE h.lane = e.lane AND h.status = 'held' AND e.status = 'waiting' AND e.due_at IS NULL
        ORDER BY h.version, h.ordinal, h.key LIMIT 1) AS "behind?"
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
  AND ($13::timestamptz IS NULL OR e.last_sent_at >= $13)
  AND ($14::timestamptz IS NULL OR e.last_sent_at < $14)
  -- A record that is in the outbox may be on its way.
  AND (NOT $15::boolean OR e.settled_at IS NULL AND e.first_sent_at IS NULL AND NOT e.was_unknown
       AND e.due_at IS DISTINCT FROM 'infinity')
ORDER BY CASE WHEN $12::boolean THEN e.created_at END, e.created_at DESC, e.key
LIMIT $7

-- Effects of one event, or one effect, for people.
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
WHERE e.key = ANY($1)
ORDER BY e.ordinal, e.key

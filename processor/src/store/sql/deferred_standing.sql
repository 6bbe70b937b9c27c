-- What is on record of the order of these entities: how far their versions were decided, the lowest parked version
-- that holds later ones back, and the lowest of the connector's events that wait. `$2`: parked rows that are decided
-- now. `$5`: up to when all has been read.
SELECT u.entity AS "entity!", p.version AS "passed?", h.version AS "held?", d.id AS "id?", d.event AS "event?",
       d.version AS "version?", d.fingerprint AS "fingerprint?", d.source AS "source?",
       d.record_partition AS "partition?", d.record_offset AS "offset?", d.bytes AS "bytes?",
       d.age_ms AS "age_ms?", d.overdue AS "overdue?", d.untimed AS "untimed?"
FROM UNNEST($1::uuid[]) AS u (entity)
LEFT JOIN oncely.passed AS p ON p.entity = u.entity
LEFT JOIN LATERAL (
    SELECT min(o.held_version) AS version
    FROM oncely.parked AS o
    WHERE o.holds = u.entity AND o.closed_at IS NULL AND o.id <> ALL($2::bigint[])) AS h ON true
LEFT JOIN LATERAL (
    SELECT o.id, o.event, o.version, o.fingerprint, o.source, o.record_partition, o.record_offset,
           coalesce(octet_length(o.value), 0)::bigint AS bytes,
           (extract(epoch FROM now() - o.deferred_at) * 1000)::bigint AS age_ms,
           -- When the time of any of them has come, the lowest goes: it stands before that one.
           o.due_at <= coalesce($5::timestamptz, '-infinity')
           OR (row_number() OVER (ORDER BY o.version, o.id) = 1 AND o.due_at < 'infinity'
               AND bool_or(o.due_at <= coalesce($5::timestamptz, '-infinity')) OVER ()) AS overdue, o.due_at = 'infinity' AS untimed
    FROM oncely.deferred AS o
    WHERE o.entity = u.entity AND o.connector = $4 AND o.closed_at IS NULL
    ORDER BY o.version, o.id
    LIMIT $3) AS d ON true
WHERE p.version IS NOT NULL OR h.version IS NOT NULL OR d.id IS NOT NULL
ORDER BY u.entity, d.version, d.id

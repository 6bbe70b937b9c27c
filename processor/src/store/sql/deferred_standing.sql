-- What is on record of the order of these entities: how far their versions were decided, which ones were ahead of a
-- missing one, the parked versions above their own that hold later ones back, and the lowest of the connector's events
-- that wait. `$2`: parked rows that are decided now. `$5`: up to when all has been read.
SELECT u.entity AS "entity!", p.version AS "passed?", a.versions AS "ahead?", h.versions AS "held?", d.id AS "id?", d.event AS "event?",
       d.version AS "version?", d.fingerprint AS "fingerprint?", d.source AS "source?",
       d.record_partition AS "partition?", d.record_offset AS "offset?", d.bytes AS "bytes?",
       d.age_ms AS "age_ms?", d.overdue AS "overdue?", d.untimed AS "untimed?"
FROM UNNEST($1::uuid[]) AS u (entity)
LEFT JOIN LATERAL (SELECT n.version FROM oncely.passed AS n WHERE n.entity = u.entity LIMIT 1) AS p ON true
LEFT JOIN LATERAL (
    SELECT array_agg(o.version) AS versions
    FROM (SELECT n.version FROM oncely.ahead AS n WHERE n.entity = u.entity ORDER BY n.version LIMIT 200) AS o
) AS a ON true
LEFT JOIN LATERAL (
    SELECT array_agg(o.held_version) AS versions
    FROM (SELECT n.held_version
          FROM oncely.parked AS n
          WHERE n.holds = u.entity AND n.closed_at IS NULL AND n.id <> ALL($2::bigint[])
            AND n.held_version > coalesce((SELECT e.version FROM oncely.entity AS e WHERE e.key = u.entity), -1)
          ORDER BY n.held_version
          LIMIT 200) AS o
) AS h ON true
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
WHERE p.version IS NOT NULL OR a.versions IS NOT NULL OR h.versions IS NOT NULL OR d.id IS NOT NULL
ORDER BY u.entity, d.version, d.id

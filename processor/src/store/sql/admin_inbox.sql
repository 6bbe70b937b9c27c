-- One event as it was applied, how often it came again, and where last.
SELECT i.first_seen_at, i.outcome, i.version, i.from_state, i.to_state, i.effects, i.entity,
       s.topic AS "topic?", i.first_partition, i.first_offset,
       r.times AS "times?", r.last_seen_at AS "last_seen_at?", rs.topic AS "last_topic?",
       r.partition AS "last_partition?", r.last_offset AS "last_offset?"
FROM oncely.inbox AS i
LEFT JOIN oncely.source AS s ON s.id = i.source
LEFT JOIN LATERAL (
    SELECT sum(o.times) OVER ()::bigint AS times, o.last_seen_at, o.source, o.partition, o.last_offset
    FROM oncely.repeat AS o
    WHERE o.key = i.key
    ORDER BY o.last_seen_at DESC
    LIMIT 1) AS r ON true
LEFT JOIN oncely.source AS rs ON rs.id = r.source
WHERE i.key = $1

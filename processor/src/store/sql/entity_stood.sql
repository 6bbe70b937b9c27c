-- Since when entities stand where they stand, for events that may have been run and forgotten: since before the failover
-- that may have lost that (by its number, or the one in doubt), and by which record, where that was decided as soon as
-- it was read.
SELECT e.key, u.failover AS "failover?", coalesce(e.updated_at < f.at, false) AS "before!", i.source AS "source?",
       i.first_partition AS "partition?", i.first_offset AS "offset?"
FROM UNNEST($1::uuid[], $2::integer[]) AS u (entity, failover)
JOIN oncely.entity AS e ON e.key = u.entity
LEFT JOIN oncely.failover AS f ON f.number = coalesce(u.failover, oncely.failover_in_doubt())
LEFT JOIN oncely.inbox AS i ON i.key = e.event
    AND NOT EXISTS (SELECT FROM oncely.parked AS p WHERE p.event = i.key)
    AND NOT EXISTS (SELECT FROM oncely.deferred AS d WHERE d.event = i.key)

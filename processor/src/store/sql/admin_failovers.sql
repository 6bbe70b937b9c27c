-- Where the database has been, newest first, for people.
SELECT number, at, system_identifier, timeline, system_before, timeline_before, lossless, lost_since, positions, effects
FROM oncely.failover
ORDER BY number DESC
LIMIT $1

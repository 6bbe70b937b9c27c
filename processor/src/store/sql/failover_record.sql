-- The database is elsewhere than is on record; whoever is second changes nothing. The last sign of life that is
-- there tells since when something may be lost; where an earlier loss is not made up for yet by a connector that ran
-- then, since that one.
INSERT INTO oncely.failover (number, system_identifier, timeline, system_before, timeline_before, lossless,
                             lost_since, quiet_at)
SELECT $1::integer, $2, $3, $4, $5, $6,
       least(now(), (SELECT max(heartbeat_at) FROM oncely.worker),
             (SELECT lost_since FROM oncely.failover
              WHERE number = $1 - 1 AND EXISTS (SELECT FROM oncely.in_doubt WHERE seen_at > lost_since - interval '10 minutes'))),
       now() + make_interval(secs => greatest($7::integer, (
           SELECT max(lease_ms) FROM oncely.worker WHERE dead_at IS NULL AND ended_at IS NULL)) / 1000.0)
ON CONFLICT DO NOTHING

-- Whether a person may have had an event replayed that was read by then, in what a failover has lost: nothing tells that
-- any more. Who asks for the same once more does so within a day.
SELECT EXISTS (SELECT FROM oncely.failover
               WHERE NOT lossless AND at > now() - interval '1 day' AND at > $1::timestamptz - interval '10 minutes')
       AS "any!"

-- The moment, and whether the time of an event that waits has come since `$2`.
SELECT now() AS "now!",
       EXISTS (SELECT FROM oncely.deferred
               WHERE connector = $1 AND closed_at IS NULL
                 AND due_at <= now() AND due_at > coalesce($2::timestamptz, '-infinity')) AS "any!"

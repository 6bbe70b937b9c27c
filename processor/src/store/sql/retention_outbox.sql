-- Removes one slice of records that were sent or given up long ago.
DELETE FROM oncely.outbox AS o
USING (SELECT id FROM oncely.outbox
       WHERE connector = $1
         AND finished_at < now() - make_interval(secs => $2::bigint / 1000.0)
       LIMIT $3
       FOR UPDATE SKIP LOCKED) AS old
WHERE o.id = old.id

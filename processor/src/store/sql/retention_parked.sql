-- Removes one slice of parked rows that were closed long ago.
DELETE FROM oncely.parked AS p
USING (SELECT id FROM oncely.parked AS o
       WHERE connector = $1
         AND closed_at < now() - make_interval(secs => $2::bigint / 1000.0)
         AND NOT EXISTS (SELECT FROM oncely.outbox AS b
                         WHERE b.parked = o.id AND b.status IN ('waiting', 'held'))
       LIMIT $3
       FOR UPDATE SKIP LOCKED) AS old
WHERE p.id = old.id

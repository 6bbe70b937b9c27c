-- Records that the brokers refuse, as far as they are still this relay's: a person decides.
UPDATE oncely.outbox AS o
SET status = 'held', attempts = o.attempts + 1, note = u.note
FROM UNNEST($1::bigint[], $2::text[], $4::uuid[]) AS u (id, note, message)
-- Numbers that were lost in a failover are given out again.
WHERE o.id = u.id AND o.message = u.message AND o.status = 'waiting'
  AND EXISTS (SELECT FROM oncely.slice AS s
              WHERE s.connector = o.connector AND s.slice = o.slice AND s.worker = $3)
RETURNING o.id

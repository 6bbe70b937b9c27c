-- Puts records into the outbox, in this order. One that is there already and was not sent is tried again,
-- in its old place.
INSERT INTO oncely.outbox (message, sequence, slice, topic, parked, connector)
SELECT u.message, u.sequence, u.slice, u.topic, u.parked, $6
FROM UNNEST($1::uuid[], $2::uuid[], $3::smallint[], $4::text[], $5::bigint[])
     WITH ORDINALITY AS u (message, sequence, slice, topic, parked, at)
ORDER BY u.at
ON CONFLICT (message) DO UPDATE
SET status = 'waiting', finished_at = NULL, note = NULL, sequence = excluded.sequence,
    slice = excluded.slice, topic = excluded.topic
WHERE outbox.status IN ('held', 'skipped')

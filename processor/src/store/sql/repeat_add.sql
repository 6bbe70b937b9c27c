-- A redelivery of a repeat that was counted already is not counted again.
INSERT INTO oncely.repeat AS r (key, times, source, last_partition, last_offset)
SELECT u.key, u.times, u.source, u.last_partition, u.last_offset
FROM UNNEST($1::uuid[], $2::bigint[], $3::integer[], $4::integer[], $5::bigint[])
     AS u (key, times, source, last_partition, last_offset)
ON CONFLICT (key) DO UPDATE
SET times = r.times + excluded.times, source = excluded.source,
    last_partition = excluded.last_partition, last_offset = excluded.last_offset,
    last_seen_at = now()
WHERE (r.source, r.last_partition) IS DISTINCT FROM (excluded.source, excluded.last_partition)
   OR r.last_offset < excluded.last_offset

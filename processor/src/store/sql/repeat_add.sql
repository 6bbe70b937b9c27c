-- Counts repeats. Those of one id come in the order of their partition, so what is not above the last
-- one that was counted there is read again.
INSERT INTO oncely.repeat AS r (key, source, partition, last_offset, times)
SELECT u.key, u.source, u.partition, max(u.at), count(*)
FROM UNNEST($1::uuid[], $2::integer[], $3::integer[], $4::bigint[]) AS u (key, source, partition, at)
GROUP BY u.key, u.source, u.partition
ORDER BY u.key, u.source, u.partition
ON CONFLICT (key, source, partition) DO UPDATE
SET times = r.times + CASE WHEN excluded.times = 1 THEN 1 ELSE (
        SELECT count(*)
        FROM UNNEST($1::uuid[], $2::integer[], $3::integer[], $4::bigint[])
             AS n (key, source, partition, at)
        WHERE (n.key, n.source, n.partition) = (r.key, r.source, r.partition)
          AND n.at > r.last_offset) END,
    last_offset = excluded.last_offset, last_seen_at = now()
WHERE r.last_offset < excluded.last_offset

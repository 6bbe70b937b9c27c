-- Outcomes that are on record already, by the same fence.
SELECT e.key
FROM oncely.effect AS e
JOIN UNNEST($1::uuid[], $2::bigint[], $3::text[]) AS u (key, fence, status)
  ON u.key = e.key AND u.fence = e.fence AND u.status = e.status
WHERE e.worker IS NULL

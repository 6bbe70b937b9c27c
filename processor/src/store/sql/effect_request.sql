-- Stores the bytes of requests that were rendered late, with the claim.
UPDATE oncely.effect AS e
SET request = u.request
FROM UNNEST($1::uuid[], $2::bytea[]) AS u (key, request)
WHERE e.key = u.key AND e.request IS NULL

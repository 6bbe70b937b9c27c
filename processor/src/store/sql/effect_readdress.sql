-- Stores requests that go to another host than when they were made, with the claim.
UPDATE oncely.effect AS e
SET request = u.request
FROM UNNEST($1::uuid[], $2::bytea[]) AS u (key, request)
WHERE e.key = u.key AND e.status = 'claimed' AND NOT e.was_unknown

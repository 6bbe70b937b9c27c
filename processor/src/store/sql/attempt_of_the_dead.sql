INSERT INTO oncely.attempt (effect, fence, worker, outcome, note)
SELECT u.effect, u.fence, u.worker, 'unknown', 'the worker died with the claim'
FROM UNNEST($1::uuid[], $2::bigint[], $3::uuid[]) AS u (effect, fence, worker)
ON CONFLICT DO NOTHING

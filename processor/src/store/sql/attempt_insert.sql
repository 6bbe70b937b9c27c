INSERT INTO oncely.attempt (effect, fence, worker, outcome, status_code, note, evidence)
SELECT u.effect, u.fence, $1, u.outcome, u.status_code, u.note, u.evidence
FROM UNNEST($2::uuid[], $3::bigint[], $4::text[], $5::smallint[], $6::text[], $7::boolean[])
     AS u (effect, fence, outcome, status_code, note, evidence)
ON CONFLICT DO NOTHING

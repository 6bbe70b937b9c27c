-- Attempts on record, oldest first.
SELECT effect, fence, at, outcome, status_code, note, evidence
FROM oncely.attempt
WHERE effect = ANY($1)
ORDER BY at, fence

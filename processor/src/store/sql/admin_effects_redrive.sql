-- Rejected effects are tried once more, under their own keys. What may have been applied stays unknown, and goes by
-- its rule for that. They are blocked until their order has been looked at. What retention has taken of a request
-- stands in its dead letter.
WITH again AS (
    UPDATE oncely.effect AS e
    SET status = 'waiting', settled_at = NULL, due_at = NULL, failures = 0, failing_since = NULL,
        lookups = 0, takeovers = CASE WHEN e.was_unknown THEN least(e.takeovers, 1) ELSE 0 END, status_code = NULL, note = $2, request = coalesce(e.request, p.value)
    FROM oncely.parked AS p
    WHERE e.key = ANY($1::uuid[]) AND e.status = 'rejected'
      AND p.effect = e.key
    RETURNING e.key
)
UPDATE oncely.parked AS p
SET closed_at = now(), closed_as = 'redriven', redrives = p.redrives + 1, letter = false
FROM again
WHERE p.effect = again.key
RETURNING p.id, again.key AS "key!"

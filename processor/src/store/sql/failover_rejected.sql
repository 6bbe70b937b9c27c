-- What is rejected may have been redriven since, and done; and so may what was skipped because of it.
WITH RECURSIVE again (key) AS (
    SELECT e.key
    FROM oncely.parked AS p
    JOIN oncely.effect AS e ON e.key = p.effect
    WHERE p.closed_at IS NULL AND e.status = 'rejected'
    UNION
    SELECT e.key
    FROM again AS a
    JOIN oncely.effect AS e ON e.after_keys @> ARRAY[a.key]
    WHERE e.status = 'skipped' AND e.note = 'an effect that it comes after was not done'
)
UPDATE oncely.effect AS e
SET suspect = true, was_unknown = true, first_sent_at = coalesce(e.first_sent_at, f.lost_since),
    unknown_at = greatest(e.unknown_at, f.quiet_at)
FROM again, oncely.failover AS f
WHERE e.key = again.key AND f.number = $1

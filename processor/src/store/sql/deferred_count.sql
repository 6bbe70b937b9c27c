-- How many events of a connector wait, as far as it matters.
SELECT count(*) AS "count!"
FROM (SELECT FROM oncely.deferred WHERE connector = $1 AND closed_at IS NULL LIMIT $2) AS d

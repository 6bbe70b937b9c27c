-- What was skipped because one of these was not done, of whatever event, and what was skipped because of that.
WITH RECURSIVE again (key) AS (
    SELECT unnest($1::uuid[])
    UNION
    SELECT e.key
    FROM again AS a
    JOIN oncely.effect AS e ON e.after_keys @> ARRAY[a.key]
    WHERE e.status = 'skipped' AND e.note = 'an effect that it comes after was not done'
)
SELECT e.key, e.lane, e.lane = e.event AS "is_event!"
FROM oncely.effect AS e JOIN again ON again.key = e.key
WHERE e.key <> ALL($1::uuid[])

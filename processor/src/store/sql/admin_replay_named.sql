-- Names of what an event has on record, under whichever key: its effects, and lines where they are asked for.
SELECT e.name AS "name!"
FROM oncely.effect AS e
WHERE e.key = ANY($1::uuid[])
UNION
SELECT l.name
FROM oncely.ledger AS l
WHERE $4 AND l.tenant = $2 AND l.event = $3

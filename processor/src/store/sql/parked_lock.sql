-- Those of them that nobody has decided meanwhile.
SELECT id
FROM oncely.parked
WHERE id = ANY($1::bigint[]) AND redrive_at IS NOT NULL
ORDER BY id
FOR UPDATE

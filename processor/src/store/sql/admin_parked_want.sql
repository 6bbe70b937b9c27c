-- The workers of the connector decide these records again.
UPDATE oncely.parked
SET redrive_at = now(), release = $2
WHERE id = ANY($1::bigint[]) AND closed_at IS NULL AND effect IS NULL AND redrive_at IS NULL
RETURNING id

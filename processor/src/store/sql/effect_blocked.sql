-- Lanes of the connector with effects that wait for others: the sweeper looks at their order again,
-- for what no settling could see (a predecessor in another lane, a person's word).
SELECT DISTINCT lane
FROM oncely.effect
WHERE connector = $1 AND status = 'waiting' AND due_at IS NULL AND settled_at IS NULL
LIMIT $2

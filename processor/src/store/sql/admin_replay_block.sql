-- Effects of later versions that have not gone yet wait for what is added to an earlier one. The lane is
-- locked; what is claimed or unknown is on its way.
UPDATE oncely.effect
SET due_at = NULL
WHERE lane = $1 AND settled_at IS NULL AND status = 'waiting' AND due_at IS NOT NULL
  AND version > $2 AND event <> $3

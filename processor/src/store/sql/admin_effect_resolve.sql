-- A person's word. It ends unknown: what was seen before is in the audit row and in the attempts. The
-- retry plan begins anew.
UPDATE oncely.effect
SET status = $2,
    due_at = CASE WHEN $2 = 'waiting' THEN now() END,
    settled_at = CASE WHEN $2 <> 'waiting' THEN now() END,
    was_unknown = false,
    asks = false,
    lookups = 0,
    takeovers = 0,
    failures = 0,
    failing_since = NULL,
    note = $3,
    result = $4
WHERE key = $1

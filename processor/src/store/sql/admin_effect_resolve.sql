-- A person's word. It ends unknown, unless the provider is to be asked: what was seen before is in the
-- audit row and in the attempts. One that is given up keeps it: it may be redriven by whoever does not know. The
-- retry plan begins anew.
UPDATE oncely.effect
SET status = $2,
    worker = NULL,
    due_at = CASE WHEN $2 IN ('waiting', 'unknown') THEN now() END,
    settled_at = CASE WHEN $2 NOT IN ('waiting', 'unknown') THEN now() END,
    was_unknown = $2 = 'unknown' OR ($2 = 'rejected' AND (was_unknown OR status = 'claimed')),
    unknown_at = CASE WHEN $2 = 'rejected' AND status = 'claimed' THEN now() ELSE unknown_at END,
    asks = $2 = 'unknown',
    suspect = suspect AND $2 IN ('unknown', 'rejected'),
    lookups = 0,
    takeovers = CASE WHEN $2 = 'rejected' AND status = 'claimed' THEN 1
                     WHEN $2 = 'unknown' OR ($2 = 'rejected' AND was_unknown) THEN least(takeovers, 1) ELSE 0 END,
    failures = 0,
    failing_since = NULL,
    note = $3,
    result = $4
WHERE key = $1

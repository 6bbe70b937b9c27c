-- A person's word adds to what an event owes.
UPDATE oncely.inbox
SET effects = $2
WHERE key = $1

-- The states that entities had before these events.
SELECT key, from_state
FROM oncely.inbox
WHERE key = ANY($1::uuid[]) AND from_state IS NOT NULL

-- Parked events are decided again: what is remembered of them is that they were parked.
DELETE FROM oncely.inbox
WHERE key = ANY($1::uuid[]) AND outcome IN ('quarantined', 'dead_lettered')

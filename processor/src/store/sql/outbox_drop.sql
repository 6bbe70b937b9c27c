-- A record whose effect was settled by a person is not sent any more.
UPDATE oncely.outbox
SET status = 'skipped', finished_at = now()
WHERE message = $1 AND status IN ('waiting', 'held')

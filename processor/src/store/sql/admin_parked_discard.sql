-- Nothing follows from these any more; what waits in the outbox for their topic is dropped with them.
WITH closed AS (
    UPDATE oncely.parked
    SET closed_at = now(), closed_as = 'discarded', redrive_at = NULL, release = false, letter = false
    WHERE id = ANY($1::bigint[]) AND closed_at IS NULL
    RETURNING id
), dropped AS (
    UPDATE oncely.outbox AS o
    SET status = 'skipped', finished_at = now()
    FROM closed
    WHERE o.parked = closed.id AND o.status IN ('waiting', 'held')
)
SELECT id AS "id!" FROM closed

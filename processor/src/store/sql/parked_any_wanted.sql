-- Whether a person wants a parked record decided again, or an event waits whose time may come.
SELECT EXISTS (SELECT FROM oncely.parked WHERE connector = $1 AND redrive_at IS NOT NULL)
       OR EXISTS (SELECT FROM oncely.deferred WHERE connector = $1 AND closed_at IS NULL) AS "any!"

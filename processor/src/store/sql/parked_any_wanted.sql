SELECT EXISTS (SELECT FROM oncely.parked WHERE connector = $1 AND redrive_at IS NOT NULL) AS "any!"

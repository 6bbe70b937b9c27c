SELECT EXISTS (SELECT FROM oncely.parked WHERE connector = $1 AND letter) AS "any!"

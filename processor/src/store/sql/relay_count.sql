SELECT count(*) AS "count!" FROM oncely.relay WHERE connector = $1

-- Ids of the effects that connector files had when they ran last; of one connector, or of all.
SELECT DISTINCT unnest(effects) AS "name!" FROM oncely.connector
WHERE $1::text IS NULL OR name = $1
ORDER BY 1

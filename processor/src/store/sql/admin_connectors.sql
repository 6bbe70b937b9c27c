-- Names and scopes: what keys of business ids are made of.
SELECT name, scope FROM oncely.connector
WHERE $1::text IS NULL OR name = $1
ORDER BY name

-- Endpoints of a connector to which nothing is sent.
SELECT name, url FROM oncely.endpoint WHERE connector = $1

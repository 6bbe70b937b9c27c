-- Slices of a connector that relays for the first time.
INSERT INTO oncely.slice (connector, slice)
SELECT $1, s FROM generate_series(0, 31) AS s
ON CONFLICT DO NOTHING

-- The one clock that decides about rows.
SELECT (extract(epoch FROM now()) * 1000)::bigint AS "now_ms!"

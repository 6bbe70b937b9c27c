-- One at a time migrates; the key is nobody else's ("oncely" in ASCII).
SELECT pg_advisory_xact_lock(x'6f6e63656c79'::bigint)

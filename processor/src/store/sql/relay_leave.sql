DELETE FROM oncely.relay WHERE connector = $1 AND worker = $2

SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS "read_only!"

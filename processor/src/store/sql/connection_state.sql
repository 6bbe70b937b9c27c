-- Whether the server takes writes, and whether it has the settings that a session asks for at its start.
SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS "read_only!",
       current_setting('statement_timeout') = '0'
       OR current_setting('idle_in_transaction_session_timeout') = '0' AS "unbounded!"

-- What a role needs that runs processors and commands, and is not the one that ran `oncely migrate up`. Run by that one,
-- after each migration or, for its later ones as well, once: the defaults hold for what it makes from now on.
GRANT USAGE ON SCHEMA oncely TO processor;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA oncely TO processor;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA oncely TO processor;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA oncely TO processor;
ALTER DEFAULT PRIVILEGES IN SCHEMA oncely GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO processor;
ALTER DEFAULT PRIVILEGES IN SCHEMA oncely GRANT USAGE ON SEQUENCES TO processor;
ALTER DEFAULT PRIVILEGES IN SCHEMA oncely GRANT EXECUTE ON FUNCTIONS TO processor;
-- Optional: the log names the statement of another role's session that keeps Oncely from a table or a row.
-- GRANT pg_read_all_stats TO processor;

-- What follows may touch every open effect.
SELECT set_config('statement_timeout', '1h', true) AS statements, set_config('lock_timeout', '1min', true) AS locks

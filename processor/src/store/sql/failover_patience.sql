-- What follows may touch every open effect.
SET LOCAL statement_timeout = '1h'

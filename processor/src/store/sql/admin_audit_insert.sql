-- Every override by a person is on record, in the transaction that does it.
INSERT INTO oncely.audit (subject, actor, action, reason, detail) VALUES ($1, $2, $3, $4, $5)

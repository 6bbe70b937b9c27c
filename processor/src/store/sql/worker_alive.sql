SELECT 1 AS "one!" WHERE oncely.may_claim($1)

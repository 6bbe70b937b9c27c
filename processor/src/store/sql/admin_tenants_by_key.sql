-- The tenants whose events these are.
SELECT DISTINCT tenant FROM oncely.inbox WHERE key = ANY($1::uuid[]) LIMIT 20

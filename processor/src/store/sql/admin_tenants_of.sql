-- Tenants that have effects or parked records under a business id. Reads whole tables: only for a
-- person who gave no tenant.
SELECT tenant AS "tenant!" FROM oncely.effect WHERE business_id = $1
UNION
SELECT tenant FROM oncely.parked WHERE business_id = $1
LIMIT 20

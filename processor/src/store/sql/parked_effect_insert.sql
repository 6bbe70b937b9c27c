-- A rejected effect becomes a dead letter of its own.
INSERT INTO oncely.parked (connector, kind, reason, detail, event, effect, tenant, business_id, value)
SELECT e.connector, 'dead_letter', 'effect_rejected',
       left(format('%s: %s %s', e.name, coalesce(e.status_code::text, '-'), coalesce(e.note, '')), 2000),
       e.event, e.key, e.tenant, e.business_id, e.request
FROM oncely.effect AS e
WHERE e.key = ANY($1::uuid[]) AND e.status = 'rejected'
ON CONFLICT DO NOTHING

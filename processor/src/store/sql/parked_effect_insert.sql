-- A rejected effect becomes a dead letter of its own. One that was redriven and is rejected again is open again.
INSERT INTO oncely.parked (connector, kind, reason, detail, event, effect, tenant, business_id, value, letter)
SELECT e.connector, 'dead_letter', 'effect_rejected',
       left(concat_ws(' ', e.name || ':', e.status_code::text, e.note), 2000),
       e.event, e.key, e.tenant, e.business_id, e.request,
       EXISTS (SELECT FROM oncely.connector AS c WHERE c.id = e.connector AND c.dead_letter IS NOT NULL)
FROM oncely.effect AS e
WHERE e.key = ANY($1::uuid[]) AND e.status = 'rejected'
ON CONFLICT (effect) WHERE effect IS NOT NULL DO UPDATE
SET detail = excluded.detail, value = coalesce(excluded.value, parked.value), letter = excluded.letter, parked_at = now(),
    first_at = coalesce(parked.first_at, parked.parked_at), first_reason = coalesce(parked.first_reason, parked.reason),
    first_detail = coalesce(parked.first_detail, parked.detail),
    closed_at = NULL, closed_as = NULL
WHERE parked.closed_at IS NOT NULL

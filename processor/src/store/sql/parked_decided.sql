-- What became of parked records that were decided again: closed, or parked anew for this reason. Why each was parked
-- first stays on record.
UPDATE oncely.parked AS p
SET redrive_at = NULL, release = false, redrives = p.redrives + 1,
    closed_at = CASE WHEN u.kind IS NULL THEN now() END,
    closed_as = CASE WHEN u.kind IS NULL THEN u.outcome END,
    parked_at = CASE WHEN u.kind IS NULL THEN p.parked_at ELSE now() END,
    first_at = CASE WHEN u.kind IS NULL THEN p.first_at ELSE coalesce(p.first_at, p.parked_at) END,
    first_reason = CASE WHEN u.kind IS NULL THEN p.first_reason ELSE coalesce(p.first_reason, p.reason) END,
    first_detail = CASE WHEN u.kind IS NULL THEN p.first_detail ELSE coalesce(p.first_detail, p.detail) END,
    kind = coalesce(u.kind, p.kind),
    reason = coalesce(u.reason, p.reason),
    detail = coalesce(u.detail, p.detail),
    event = coalesce(u.event, p.event),
    released = coalesce(u.released, p.released),
    tenant = coalesce(u.tenant, p.tenant),
    business_id = coalesce(u.business_id, p.business_id),
    fingerprint = coalesce(u.fingerprint, p.fingerprint),
    holds = CASE WHEN u.kind IS NULL THEN p.holds ELSE coalesce(u.holds, p.holds) END,
    held_version = CASE WHEN u.kind IS NULL THEN p.held_version ELSE coalesce(u.held_version, p.held_version) END,
    known_fingerprint = CASE WHEN u.kind IS NULL THEN p.known_fingerprint ELSE u.known_fingerprint END,
    letter = u.kind IS NOT DISTINCT FROM 'dead_letter' AND c.dead_letter IS NOT NULL
FROM UNNEST($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::text[], $8::text[],
            $9::uuid[], $10::uuid[], $11::uuid[], $12::bigint[], $13::uuid[])
     AS u (id, outcome, kind, reason, detail, event, tenant, business_id, fingerprint, known_fingerprint, holds,
           held_version, released),
     oncely.connector AS c
WHERE p.id = u.id AND c.id = p.connector

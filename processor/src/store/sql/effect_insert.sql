-- New effects. A claimed one gets its fence here; a waiting one is due now, or blocked, or its record is put
-- into the outbox by the same transaction. A suspect one may have been sent before, since the last failover
-- lost what was on record: nothing happens to it until whoever may have sent it is surely quiet. Nothing at all is
-- written where the database is elsewhere than the writer decided for ($17: by the number of the last failover), or
-- by a worker that claims ($18) and may not.
INSERT INTO oncely.effect (key, event, lane, version, connector, ordinal, name, tenant, business_id,
                           request_hash, request, after_keys, status, worker, fence, due_at,
                           first_sent_at, last_sent_at, settled_at, note, suspect, was_unknown, unknown_at)
SELECT u.key, u.event, u.lane, u.version, $15, u.ordinal, u.name, u.tenant, u.business_id,
       u.request_hash, u.request,
       CASE WHEN u.after_keys = '' THEN NULL ELSE string_to_array(u.after_keys, ',')::uuid[] END,
       CASE WHEN u.status = 'queued' THEN 'waiting'
            WHEN u.status = 'waiting' AND u.suspect AND NOT u.blocked THEN 'unknown' ELSE u.status END,
       CASE WHEN u.status = 'claimed' THEN $14::uuid END,
       CASE WHEN u.status = 'claimed' THEN nextval('oncely.fence') END,
       CASE WHEN u.status = 'waiting' AND NOT u.blocked THEN
                 CASE WHEN u.suspect THEN greatest(now(), (SELECT quiet_at FROM oncely.failover ORDER BY number DESC LIMIT 1))
                      ELSE now() END
            WHEN u.status = 'queued' THEN 'infinity'::timestamptz END,
       CASE WHEN u.suspect THEN (SELECT lost_since FROM oncely.failover ORDER BY number DESC LIMIT 1)
            WHEN u.status = 'claimed' THEN now() END,
       CASE WHEN u.status = 'claimed' THEN now() END,
       CASE WHEN u.status = 'skipped' THEN now() END,
       CASE WHEN u.status = 'skipped' THEN 'an effect that it comes after was not done' ELSE u.note END,
       u.suspect, u.suspect,
       CASE WHEN u.suspect THEN (SELECT quiet_at FROM oncely.failover ORDER BY number DESC LIMIT 1) END
FROM UNNEST($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::smallint[], $6::text[],
            $7::text[], $8::text[], $9::uuid[], $10::bytea[], $11::text[], $12::text[], $13::boolean[], $16::boolean[],
            $19::text[])
     AS u (key, event, lane, version, ordinal, name, tenant, business_id, request_hash, request,
           after_keys, status, blocked, suspect, note)
WHERE (SELECT oncely.stands_at($17)) AND (NOT $18::boolean OR (SELECT oncely.may_claim($14)))
ON CONFLICT DO NOTHING
RETURNING key, fence

-- New effects. A claimed one gets its fence here; a waiting one is due now, or blocked, or its record is put
-- into the outbox by the same transaction.
INSERT INTO oncely.effect (key, event, lane, version, connector, ordinal, name, tenant, business_id,
                           request_hash, request, after_keys, status, worker, fence, due_at,
                           first_sent_at, last_sent_at, settled_at)
SELECT u.key, u.event, u.lane, u.version, $15, u.ordinal, u.name, u.tenant, u.business_id,
       u.request_hash, u.request,
       CASE WHEN u.after_keys = '' THEN NULL ELSE string_to_array(u.after_keys, ',')::uuid[] END,
       CASE WHEN u.status = 'queued' THEN 'waiting' ELSE u.status END,
       CASE WHEN u.status = 'claimed' THEN $14::uuid END,
       CASE WHEN u.status = 'claimed' THEN nextval('oncely.fence') END,
       CASE WHEN u.status = 'waiting' AND NOT u.blocked THEN now()
            WHEN u.status = 'queued' THEN 'infinity'::timestamptz END,
       CASE WHEN u.status = 'claimed' THEN now() END,
       CASE WHEN u.status = 'claimed' THEN now() END,
       CASE WHEN u.status = 'skipped' THEN now() END
FROM UNNEST($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::smallint[], $6::text[],
            $7::text[], $8::text[], $9::uuid[], $10::bytea[], $11::text[], $12::text[], $13::boolean[])
     AS u (key, event, lane, version, ordinal, name, tenant, business_id, request_hash, request,
           after_keys, status, blocked)
ON CONFLICT DO NOTHING
RETURNING key, fence

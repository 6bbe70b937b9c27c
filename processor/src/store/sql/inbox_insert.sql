-- A key that is taken ends the transaction: another writer was first.
INSERT INTO oncely.inbox (key, fingerprint, entity, version, first_offset, first_partition, source,
                          outcome, tenant, from_state, to_state, effects)
SELECT u.key, u.fingerprint, u.entity, u.version, u.first_offset, u.first_partition, u.source,
       u.outcome, u.tenant, u.from_state, u.to_state,
       CASE WHEN u.effects = '' THEN NULL ELSE string_to_array(u.effects, ',')::uuid[] END
FROM UNNEST($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[], $6::integer[],
            $7::integer[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
     AS u (key, fingerprint, entity, version, first_offset, first_partition, source, outcome,
           tenant, from_state, to_state, effects)

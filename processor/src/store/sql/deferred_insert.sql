-- Events that wait from now on, with the bytes of their records.
INSERT INTO oncely.deferred (event, entity, fingerprint, version, cause, due_at, tenant, business_id, source,
                             record_partition, record_offset, record_timestamp, record_key, value, headers,
                             connector, suspect)
SELECT u.event, u.entity, u.fingerprint, u.version, u.cause,
       CASE WHEN u.cause = 'gap' THEN now() + make_interval(secs => $16::bigint / 1000.0) ELSE 'infinity' END,
       u.tenant, u.business_id, u.source, u.record_partition, u.record_offset, u.record_timestamp, u.record_key,
       u.value, u.headers, $15, u.suspect
FROM UNNEST($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::integer[],
            $9::integer[], $10::bigint[], $11::bigint[], $12::bytea[], $13::bytea[], $14::bytea[], $17::boolean[])
     AS u (event, entity, fingerprint, version, cause, tenant, business_id, source, record_partition,
           record_offset, record_timestamp, record_key, value, headers, suspect)

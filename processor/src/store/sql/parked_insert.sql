-- A record that is redelivered is parked once. Dead letters of a connector with a topic for them go there, too.
INSERT INTO oncely.parked (connector, kind, reason, detail, source, record_partition, record_offset,
                           record_timestamp, record_key, value, headers, event, tenant, business_id,
                           fingerprint, known_fingerprint, letter)
SELECT $16, u.kind, u.reason, u.detail, u.source, u.record_partition, u.record_offset,
       u.record_timestamp, u.record_key, u.value, u.headers, u.event, coalesce(u.tenant, ''),
       u.business_id, u.fingerprint, u.known_fingerprint,
       u.kind = 'dead_letter' AND EXISTS (SELECT FROM oncely.connector AS c
                                          WHERE c.id = $16 AND c.dead_letter IS NOT NULL)
FROM UNNEST($1::text[], $2::text[], $3::text[], $4::integer[], $5::integer[], $6::bigint[],
            $7::bigint[], $8::bytea[], $9::bytea[], $10::bytea[], $11::uuid[], $12::text[],
            $13::text[], $14::uuid[], $15::uuid[])
     AS u (kind, reason, detail, source, record_partition, record_offset, record_timestamp,
           record_key, value, headers, event, tenant, business_id, fingerprint, known_fingerprint)
ON CONFLICT DO NOTHING
RETURNING id, source AS "source!", record_partition AS "record_partition!",
          record_offset AS "record_offset!"

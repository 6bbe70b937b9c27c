INSERT INTO oncely.payload (event, source, record_partition, record_offset, record_timestamp,
                            record_key, value, headers, previous_state, current_state)
SELECT u.event, u.source, u.record_partition, u.record_offset, u.record_timestamp, u.record_key,
       u.value, u.headers, u.previous_state, u.current_state
FROM UNNEST($1::uuid[], $2::integer[], $3::integer[], $4::bigint[], $5::bigint[], $6::bytea[],
            $7::bytea[], $8::bytea[], $9::text[], $10::text[])
     AS u (event, source, record_partition, record_offset, record_timestamp, record_key, value,
           headers, previous_state, current_state)
ON CONFLICT DO NOTHING

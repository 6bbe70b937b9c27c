-- The records of events that wait.
SELECT d.id, d.event, d.entity, d.version, d.fingerprint, d.tenant, d.business_id, d.source, s.topic,
       d.record_partition, d.record_offset, d.record_timestamp, d.record_key, d.value, d.headers, d.suspect
FROM oncely.deferred AS d
JOIN oncely.source AS s ON s.id = d.source
WHERE d.id = ANY($1::bigint[]) AND d.closed_at IS NULL

-- One parked record with all that was kept of it.
SELECT p.id, p.parked_at, c.name AS "connector?", p.reason, p.tenant, p.business_id, p.detail,
       s.topic AS "topic?", p.record_partition, p.record_offset, p.effect, p.record_timestamp,
       p.event, p.fingerprint, p.known_fingerprint, p.record_key, p.value, p.headers
FROM oncely.parked AS p
LEFT JOIN oncely.connector AS c ON c.id = p.connector
LEFT JOIN oncely.source AS s ON s.id = p.source
WHERE p.kind = $1 AND p.id = $2

-- What is needed to render late requests: the event's record and where it stands.
SELECT p.event, p.record_partition, p.record_offset, p.record_timestamp, p.record_key, p.value,
       p.headers, p.previous_state, p.current_state, s.topic, i.version
FROM oncely.payload AS p
JOIN oncely.source AS s ON s.id = p.source
JOIN oncely.inbox AS i ON i.key = p.event
WHERE p.event = ANY($1::uuid[])

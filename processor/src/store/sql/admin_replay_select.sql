-- Events of a connector that are on record, in the order of each entity's versions.
SELECT i.key, i.fingerprint, i.entity, i.version, i.outcome, i.tenant, i.from_state, i.to_state,
       i.first_seen_at, i.first_partition, i.first_offset, i.source,
       (extract(epoch FROM now() - i.first_seen_at) * 1000)::bigint AS "age_ms!",
       s.topic, s.topic_id, s.cluster_id, c.id AS connector_id
FROM oncely.inbox AS i
JOIN oncely.source AS s ON s.id = i.source
JOIN oncely.connector AS c ON c.id = s.connector
WHERE c.name = $1 AND i.outcome IN ('applied', 'stale') AND ($7::text IS NULL OR i.outcome = $7)
  AND ($8::uuid IS NULL OR i.entity = $8)
  AND ($9::text IS NULL OR s.topic = $9)
  AND ($10::integer IS NULL OR i.first_partition = $10)
  AND ($2::uuid IS NULL OR i.key = $2)
  AND ($3::text IS NULL OR i.tenant = $3)
  AND ($4::timestamptz IS NULL OR i.first_seen_at >= $4)
  AND ($5::timestamptz IS NULL OR i.first_seen_at < $5)
ORDER BY i.entity, i.version, i.first_seen_at, i.key
LIMIT $6

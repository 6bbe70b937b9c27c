-- "Everything below is finished" is a fact, whoever writes it; it only has to know the epoch.
UPDATE oncely.progress AS p
SET position = u.position, witness_offset = u.witness_offset,
    witness_timestamp = u.witness_timestamp, witness_hash = u.witness_hash, updated_at = now(), holder = $11,
    suspect = CASE WHEN u.position < p.suspect THEN p.suspect END
FROM UNNEST($3::text[], $4::text[], $5::integer[], $6::bigint[], $7::bigint[], $8::bigint[],
            $9::bigint[], $10::uuid[])
     AS u (topic, topic_id, partition, epoch, position, witness_offset, witness_timestamp,
           witness_hash)
WHERE p.group_name = $1 AND p.cluster_id = $2 AND p.topic = u.topic AND p.topic_id = u.topic_id
  AND p.partition = u.partition AND p.epoch = u.epoch AND p.position < u.position
  AND (SELECT oncely.is_here())

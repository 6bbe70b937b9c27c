-- A record that is redelivered is parked once; another one that lies where it lay is parked, too. Dead letters of a
-- connector with a topic for them go there, too. One that was decided again before, and had to wait then, is opened anew.
INSERT INTO oncely.parked (connector, kind, reason, detail, source, record_partition, record_offset,
                           record_timestamp, record_key, value, headers, event, tenant, business_id,
                           fingerprint, known_fingerprint, holds, held_version, failover, entity, letter)
SELECT DISTINCT ON (u.source, u.record_partition, u.record_offset)
       $16, u.kind, u.reason, u.detail, u.source, u.record_partition, u.record_offset,
       u.record_timestamp, u.record_key, u.value, u.headers, u.event, coalesce(u.tenant, ''),
       u.business_id, u.fingerprint, u.known_fingerprint, u.holds, u.held_version,
       CASE WHEN u.suspect THEN oncely.failover_in_doubt() END, u.entity,
       u.kind = 'dead_letter' AND EXISTS (SELECT FROM oncely.connector AS c
                                          WHERE c.id = $16 AND c.dead_letter IS NOT NULL)
FROM UNNEST($1::text[], $2::text[], $3::text[], $4::integer[], $5::integer[], $6::bigint[],
            $7::bigint[], $8::bytea[], $9::bytea[], $10::bytea[], $11::uuid[], $12::text[],
            $13::text[], $14::uuid[], $15::uuid[], $17::uuid[], $18::bigint[], $19::boolean[],
            $20::uuid[])
     AS u (kind, reason, detail, source, record_partition, record_offset, record_timestamp,
           record_key, value, headers, event, tenant, business_id, fingerprint, known_fingerprint, holds,
           held_version, suspect, entity)
ON CONFLICT (source, record_partition, record_offset, coalesce(record_timestamp, -1), md5(coalesce(value, '')))
    WHERE effect IS NULL DO UPDATE
SET closed_at = NULL, closed_as = NULL, parked_at = now(), kind = excluded.kind, reason = excluded.reason,
    detail = excluded.detail, first_at = coalesce(parked.first_at, parked.parked_at),
    first_reason = coalesce(parked.first_reason, parked.reason),
    first_detail = coalesce(parked.first_detail, parked.detail), holds = excluded.holds, held_version = excluded.held_version,
    letter = excluded.letter, failover = least(parked.failover, excluded.failover)
WHERE parked.closed_as = 'deferred'
RETURNING id, source AS "source!", record_partition AS "record_partition!",
          record_offset AS "record_offset!"

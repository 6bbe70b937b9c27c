-- Back to an earlier record. Trackers of the old epoch write nothing any more, and what stands before the
-- new position is found out when it is next raised.
UPDATE oncely.progress
SET epoch = epoch + 1, position = $6, decided = NULL, updated_at = now(),
    witness_offset = NULL, witness_timestamp = NULL, witness_hash = NULL
WHERE group_name = $1 AND cluster_id = $2 AND topic = $3 AND topic_id = $4 AND partition = $5
  AND epoch = $7 AND position > $6 AND stopped IS NULL

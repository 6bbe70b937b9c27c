-- The topic is what it is now. Trackers of the old epoch write nothing any more.
UPDATE oncely.progress
SET epoch = epoch + 1, position = $6, decided = NULL, stopped = NULL, updated_at = now(),
    witness_offset = NULL, witness_timestamp = NULL, witness_hash = NULL,
    suspect = CASE WHEN $6 < suspect THEN suspect END
WHERE group_name = $1 AND topic = $2 AND cluster_id = $3 AND topic_id = $4 AND partition = $5

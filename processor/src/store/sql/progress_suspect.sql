-- Records that lie in the topic by now may be done already; what comes later cannot.
UPDATE oncely.progress SET suspect = CASE WHEN position < $7 THEN $7 END
WHERE group_name = $1 AND cluster_id = $2 AND topic = $3 AND topic_id = $4 AND partition = $5
  AND epoch = $6 AND suspect > $7

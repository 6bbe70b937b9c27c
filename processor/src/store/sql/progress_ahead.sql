-- Below these offsets everything is decided, finished or not: a fact as a position is, whoever writes it. It only has to
-- know the epoch.
UPDATE oncely.progress AS p
SET decided = u.decided
FROM UNNEST($3::text[], $4::text[], $5::integer[], $6::bigint[], $7::bigint[])
     AS u (topic, topic_id, partition, epoch, decided)
WHERE p.group_name = $1 AND p.cluster_id = $2 AND p.topic = u.topic AND p.topic_id = u.topic_id
  AND p.partition = u.partition AND p.epoch = u.epoch AND p.position < u.decided
  AND (p.decided IS NULL OR p.decided < u.decided) AND (SELECT oncely.is_here())

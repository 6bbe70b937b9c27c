-- Records that the brokers have: that is a fact, whoever found it out.
UPDATE oncely.outbox AS o
SET status = 'done', finished_at = now(), attempts = o.attempts + 1, note = NULL,
    sent_partition = u.sent_partition, sent_offset = u.sent_offset
FROM UNNEST($1::bigint[], $2::integer[], $3::bigint[], $4::uuid[]) AS u (id, sent_partition, sent_offset, message)
-- Numbers that were lost in a failover are given out again.
WHERE o.id = u.id AND o.message = u.message AND o.status <> 'done'

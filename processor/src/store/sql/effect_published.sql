-- Effects whose records the brokers have. What a person has settled meanwhile stays so.
UPDATE oncely.effect AS e
SET status = 'done', settled_at = now(), due_at = NULL, worker = NULL, attempts = e.attempts + 1,
    first_sent_at = coalesce(e.first_sent_at, now()), last_sent_at = now(), note = NULL, result = u.result
FROM UNNEST($1::uuid[], $2::bytea[]) AS u (key, result)
WHERE e.key = u.key AND e.settled_at IS NULL
RETURNING e.key

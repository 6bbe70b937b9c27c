-- Effects whose records the brokers refuse, with the attempt on record.
WITH held AS (
    UPDATE oncely.effect AS e
    SET status = 'held', due_at = NULL, attempts = e.attempts + 1, note = u.note,
        first_sent_at = coalesce(e.first_sent_at, now()), last_sent_at = now()
    FROM UNNEST($1::uuid[], $2::text[]) AS u (key, note)
    WHERE e.key = u.key AND e.status = 'waiting' AND e.due_at = 'infinity'
    RETURNING e.key, e.note
), tried AS (
    INSERT INTO oncely.attempt (effect, fence, worker, outcome, note)
    SELECT held.key, nextval('oncely.fence'), $3, 'refused', held.note FROM held
)
SELECT key AS "key!" FROM held

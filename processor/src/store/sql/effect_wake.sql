-- Blocked effects whose turn has come: claimed where a slot is free and the worker may claim, else due now; those that
-- never can run are skipped. The lanes are locked, so nothing else changes these rows. OFFSET 0: who may claim is asked
-- once.
UPDATE oncely.effect AS e
SET status = CASE u.turn WHEN 'claim' THEN 'claimed' WHEN 'skip' THEN 'skipped' ELSE 'waiting' END,
    worker = CASE WHEN u.turn = 'claim' THEN $3::uuid END,
    fence = CASE WHEN u.turn = 'claim' THEN nextval('oncely.fence') ELSE e.fence END,
    due_at = CASE WHEN u.turn = 'due' THEN now() END,
    first_sent_at = CASE WHEN u.turn = 'claim' THEN coalesce(e.first_sent_at, now())
                         ELSE e.first_sent_at END,
    last_sent_at = CASE WHEN u.turn = 'claim' THEN now() ELSE e.last_sent_at END,
    settled_at = CASE WHEN u.turn = 'skip' THEN now() END,
    note = CASE WHEN u.turn = 'skip' THEN 'an effect that it comes after was not done' END
FROM (SELECT w.key, CASE WHEN w.turn = 'claim' AND NOT (SELECT oncely.may_claim($3::uuid)) THEN 'due' ELSE w.turn END
      FROM UNNEST($1::uuid[], $2::text[]) AS w (key, turn) OFFSET 0) AS u (key, turn)
WHERE e.key = u.key AND e.status = 'waiting'
RETURNING e.key, coalesce(e.fence, 0) AS "fence!", e.event, e.lane, e.version, e.name, e.connector,
          e.tenant, e.business_id, e.request, e.was_unknown, e.asks, e.suspect, e.attempts, e.failures,
          e.lookups, e.takeovers, e.after_keys,
          coalesce((extract(epoch FROM now() - e.first_sent_at) * 1000)::bigint, 0) AS "elapsed_ms!",
          (extract(epoch FROM now() - e.failing_since) * 1000)::bigint AS failing_ms,
          (extract(epoch FROM now() - e.unknown_at) * 1000)::bigint AS quiet_ms,
          e.status

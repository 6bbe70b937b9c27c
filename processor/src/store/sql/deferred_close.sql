-- Events that wait no more, with what they came to. That they waited is forgotten in the inbox, where this
-- transaction writes them anew. Fewer rows than given: another writer has let one of them go.
WITH closed AS (
    UPDATE oncely.deferred AS d
    SET closed_at = now(), closed_as = u.outcome, escalated = u.escalated, record_key = NULL, value = NULL,
        headers = ''
    FROM UNNEST($1::bigint[], $2::text[], $3::boolean[]) AS u (id, outcome, escalated)
    WHERE d.id = u.id AND d.closed_at IS NULL
    RETURNING d.event
)
DELETE FROM oncely.inbox AS i
USING closed
WHERE i.key = closed.event AND i.outcome = 'deferred'

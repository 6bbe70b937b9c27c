-- Events that wait under another name of this connector: it has the same scope, nobody runs it any more, and this
-- one came when that one went. A connector that has stood beside it decides by other rules.
UPDATE oncely.deferred AS d
SET connector = $1
FROM oncely.connector AS c, oncely.connector AS me
WHERE me.id = $1 AND c.scope = me.scope AND c.id <> me.id AND c.seen_at < now() - interval '2 minutes'
  AND me.registered_at > c.seen_at - interval '10 minutes'
  AND d.connector = c.id AND d.closed_at IS NULL

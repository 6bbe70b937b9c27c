-- Events that wait under another name of this connector: it has the same scope, and nobody runs it any more.
UPDATE oncely.deferred AS d
SET connector = $1
FROM oncely.connector AS c, oncely.connector AS me
WHERE me.id = $1 AND c.scope = me.scope AND c.id <> me.id AND c.seen_at < now() - interval '2 minutes'
  AND d.connector = c.id AND d.closed_at IS NULL

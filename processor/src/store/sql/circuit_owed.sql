-- Of some effects of a connector, those of which anything is tried or comes to be: what is held, or waits behind that,
-- is not, and neither is a record that waits in the outbox.
SELECT u.name AS "name!"
FROM unnest($2::text[]) AS u (name)
WHERE EXISTS (SELECT FROM oncely.effect AS e
              WHERE e.connector = $1 AND e.name = u.name AND e.due_at < 'infinity')
   OR EXISTS (SELECT FROM oncely.effect AS e
              WHERE e.connector = $1 AND e.name = u.name AND e.worker IS NOT NULL)

-- Entities of which a deferred event may go: its time has come (by `$5`, up to when all has been read), or a person
-- has just closed what held it back, or what it waited for has come unseen, at the moment when it began to wait; with
-- `$4` all are looked at. `$2`: whether parked records hold later ones back. `$6`: whether events wait for versions at
-- all; where the file lets them wait no more, whoever still does goes now. Entities are many more than those that
-- wait, so they are looked up one by one. Each is given once, however many of its events wait, by the first that may go.
-- One without a time is asked for where nothing waits before it: else a look would give those first that have to stay
-- (IS TRUE: in a young table the index that begins with the connector would look as cheap as that of the entity).
SELECT d.entity AS "entity!"
FROM oncely.deferred AS d
WHERE d.connector = $1 AND d.closed_at IS NULL
  AND (d.due_at <= coalesce($5::timestamptz, '-infinity')
       OR (d.due_at < 'infinity' AND NOT $6::boolean)
       OR (d.due_at = 'infinity'
           AND (NOT $2::boolean OR $4::boolean
                OR d.entity IN (SELECT c.holds FROM oncely.parked AS c
                                WHERE c.connector = $1 AND c.holds IS NOT NULL
                                  AND c.closed_at > now() - interval '1 minute'))
           AND NOT EXISTS (SELECT FROM oncely.deferred AS b
                           WHERE b.entity = d.entity AND b.version < d.version AND b.closed_at IS NULL
                             AND (b.connector = $1) IS TRUE))
       OR (($4::boolean OR d.deferred_at > now() - interval '1 minute')
           AND d.version <= 1 + greatest(
               (SELECT e.version FROM oncely.entity AS e WHERE e.key = d.entity),
               (SELECT p.version FROM oncely.passed AS p WHERE p.entity = d.entity)))
       OR (($4::boolean OR d.entity IN (SELECT a.entity FROM oncely.ahead AS a
                                        WHERE a.noted_at > now() - interval '1 minute'))
           AND EXISTS (SELECT FROM oncely.ahead AS a WHERE a.entity = d.entity AND a.version = d.version - 1)
           AND d.version <= 1 + oncely.reached(d.entity)))
  AND NOT ($2::boolean
           AND EXISTS (SELECT FROM oncely.parked AS h
                       WHERE h.holds = d.entity AND h.closed_at IS NULL AND h.held_version < d.version
                         AND h.held_version > coalesce(
                             (SELECT e.version FROM oncely.entity AS e WHERE e.key = d.entity), -1)))
GROUP BY d.entity
ORDER BY min(CASE WHEN d.due_at = 'infinity' THEN '-infinity' ELSE d.due_at END), d.entity
LIMIT $3

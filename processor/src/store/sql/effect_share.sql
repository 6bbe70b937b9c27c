-- Effects that further events owe. The row is locked by this, so retention cannot remove it meanwhile.
UPDATE oncely.effect AS e
SET owners = e.owners + u.more
FROM UNNEST($1::uuid[], $2::integer[]) AS u (key, more)
WHERE e.key = u.key

-- Effects that an event owes from now on as others do, by a person's word.
UPDATE oncely.effect AS e
SET owners = e.owners + u.more
FROM UNNEST($1::uuid[], $2::integer[]) AS u (key, more)
WHERE e.key = u.key

-- What effects undo, and by what they are undone. An effect that was to be undone may never have been owed,
-- or may be forgotten.
SELECT c.effect, c.undoes, e.name, e.business_id, e.status,
       u.name AS "undone_name?", u.business_id AS "undone_business_id?", u.status AS "undone_status?"
FROM oncely.compensation AS c
JOIN oncely.effect AS e ON e.key = c.effect
LEFT JOIN oncely.effect AS u ON u.key = c.undoes
WHERE c.effect = ANY($1::uuid[]) OR c.undoes = ANY($1::uuid[])
ORDER BY e.created_at

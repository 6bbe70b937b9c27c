-- What people did to these events and effects.
SELECT at, subject, actor, action, reason, detail
FROM oncely.audit
WHERE subject = ANY($1)
ORDER BY at, id

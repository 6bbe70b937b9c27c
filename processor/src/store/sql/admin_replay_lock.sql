-- What an event owes as it is on record; locked, so that one replay at a time changes it.
SELECT effects
FROM oncely.inbox
WHERE key = $1
FOR UPDATE

-- By which words the ids of a connector's events were made, the last seen first.
SELECT r.digest, r.words, r.seen_at
FROM oncely.key_rule AS r
JOIN oncely.connector AS c ON c.id = r.connector
WHERE c.name = $1 AND r.effect = ''
ORDER BY r.seen_at DESC

-- What was noted beyond entities that have come as far now.
WITH gone AS (
    DELETE FROM oncely.passed AS p
    USING oncely.entity AS e
    WHERE p.entity = ANY($1::uuid[]) AND e.key = p.entity AND e.version >= p.version
)
DELETE FROM oncely.ahead AS a
WHERE a.entity = ANY($1::uuid[])
  AND a.version <= greatest((SELECT e.version FROM oncely.entity AS e WHERE e.key = a.entity),
                            (SELECT p.version FROM oncely.passed AS p WHERE p.entity = a.entity))

SELECT oncely.stands_at($1) AS "stands!"

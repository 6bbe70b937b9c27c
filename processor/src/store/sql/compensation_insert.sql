-- Which effect undoes which.
INSERT INTO oncely.compensation (effect, undoes)
SELECT u.effect, u.undoes
FROM UNNEST($1::uuid[], $2::uuid[]) AS u (effect, undoes)

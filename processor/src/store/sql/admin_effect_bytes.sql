-- What an effect sends, and what was kept of the answer.
SELECT request, result FROM oncely.effect WHERE key = $1

-- Lanes of effects of these names whose turn has come and whose record is not in the outbox yet.
SELECT DISTINCT lane
FROM (SELECT lane FROM oncely.effect
      WHERE connector = $1 AND name = ANY($2::text[]) AND due_at <= now()
      ORDER BY due_at
      LIMIT $3) AS due
ORDER BY lane

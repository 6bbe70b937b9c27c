-- How many effects of a connector are open that no person has to look at; counted up to a bound.
SELECT count(*) AS "open!"
FROM (SELECT FROM oncely.effect
      WHERE connector = $1 AND settled_at IS NULL AND status <> 'held'
      LIMIT $2) AS open

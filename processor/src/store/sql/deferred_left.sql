-- Whether events of a connector wait, or may still come to: while files are changed, a worker that came before this
-- one may have one that lets them.
SELECT EXISTS (SELECT FROM oncely.deferred WHERE connector = $1 AND closed_at IS NULL)
       OR EXISTS (SELECT FROM oncely.worker AS w, oncely.worker AS me
                  WHERE me.id = $2 AND w.dead_at IS NULL AND w.ended_at IS NULL AND w.started_at < me.started_at
                    AND me.started_at > now() - interval '15 minutes')
       AS "any!"

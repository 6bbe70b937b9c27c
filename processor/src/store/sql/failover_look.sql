-- Where this connection leads to, what is on record there, and whether nothing was lost since the history that
-- the asker knows. The timeline is that of the next record in the log: right from the moment of a promotion on,
-- while the control file tells of the last checkpoint.
SELECT c.system_identifier AS "system_identifier!",
       ('x' || lpad(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), 16, '0'))::bit(64)::bigint AS "timeline!",
       f.number AS "number?", f.history AS "history?", f.system_identifier AS "known_system?",
       f.timeline AS "known_timeline?",
       coalesce((SELECT NOT EXISTS (SELECT FROM oncely.failover AS later
                                    WHERE later.number > known.number AND NOT later.lossless)
                 FROM oncely.failover AS known WHERE known.history = $1), false) AS "unbroken!"
FROM pg_control_system() AS c
LEFT JOIN (SELECT number, history, system_identifier, timeline
           FROM oncely.failover ORDER BY number DESC LIMIT 1) AS f ON true

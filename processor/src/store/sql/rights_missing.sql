-- What the role of this session may not do and a processor has to: deploy/grants.sql, and nothing that only migrations do.
SELECT m.what AS "what!", current_user::text AS "role!"
FROM (
    SELECT 0 AS place, 'no USAGE on schema oncely' AS what
    WHERE NOT has_schema_privilege('oncely', 'USAGE')
    UNION ALL
    SELECT 1, 'no ' || string_agg(p.name, ', ' ORDER BY p.place) || ' on oncely.' || c.relname
    FROM pg_class AS c
    CROSS JOIN LATERAL unnest(CASE
        WHEN c.relkind = 'S' THEN ARRAY['USAGE']
        WHEN c.relkind = 'v' OR c.relname = '_migrations' THEN ARRAY['SELECT']
        ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']
    END) WITH ORDINALITY AS p (name, place)
    WHERE c.relnamespace = to_regnamespace('oncely') AND c.relkind IN ('r', 'p', 'v', 'S')
      AND NOT CASE
          WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, p.name)
          ELSE has_table_privilege(c.oid, p.name)
      END
    GROUP BY c.relname
    UNION ALL
    SELECT 2, 'no EXECUTE on function ' || f.oid::regprocedure
    FROM pg_proc AS f
    WHERE (f.pronamespace = to_regnamespace('oncely')
           -- Where the database is: `failover_look.sql`.
           OR f.oid IN ('pg_control_system()'::regprocedure, 'pg_walfile_name(pg_lsn)'::regprocedure,
                        'pg_current_wal_insert_lsn()'::regprocedure))
      AND NOT has_function_privilege(f.oid, 'EXECUTE')
) AS m
ORDER BY m.place, m.what

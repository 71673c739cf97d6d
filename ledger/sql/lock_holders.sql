-- Our advisory locks and who holds them.
SELECT (l.classid::bigint)::integer AS namespace, (l.objid::bigint)::integer AS key, a.pid, a.application_name, clock_timestamp() - a.backend_start AS age
FROM pg_locks AS l
JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY 1, 2

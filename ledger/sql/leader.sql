-- Who leads the passes, read from pg_locks (never by trying the lock).
SELECT a.pid, a.application_name, a.client_addr::text, a.backend_start
FROM pg_locks AS l
JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid = (%(namespace)s::bigint)::oid AND l.objid = (%(key)s::bigint)::oid

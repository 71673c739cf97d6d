-- Cycles left behind: older than the grace, and nobody holds their lock. Read from pg_locks: trying the lock would take it away from
-- a process that is just starting.
UPDATE source_cycles AS c
SET status = 'failed', finished_at = coalesce(%(now)s::timestamptz, now()), error_code = 'abandoned',
    error_message = 'the process that ran this cycle is gone'
WHERE c.status = 'running' AND c.started_at < coalesce(%(now)s::timestamptz, now()) - %(grace)s::interval
    AND NOT EXISTS (
        SELECT FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = %(namespace)s::bigint::oid
            AND l.objid = c.source_id::bigint::oid AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
RETURNING c.id

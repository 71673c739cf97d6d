-- Remove finished passes that are older than what is kept, a bounded number at once.
DELETE FROM runs WHERE id = ANY (ARRAY (
    SELECT id FROM runs
    WHERE status <> 'running' AND finished_at < coalesce(%(now)s::timestamptz, now()) - %(older_than)s::interval
    ORDER BY id LIMIT %(limit)s
))

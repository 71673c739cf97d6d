-- Retention of the history, in bounded steps; the BRIN index finds the old end.
DELETE FROM target_history
WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM target_history WHERE finished_at < coalesce(%(now)s::timestamptz, now()) - %(older_than)s::interval LIMIT %(limit)s
))

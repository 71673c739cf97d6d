-- The fence of every step: the row is locked, and it says running, or nothing of the step may be written.
SELECT queued_updated_count, queued_reconcile_count FROM source_cycles WHERE id = %(id)s AND status = 'running' FOR UPDATE

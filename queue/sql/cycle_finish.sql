-- Close a running cycle.
UPDATE source_cycles
SET status = %(status)s::run_status, finished_at = greatest(started_at, coalesce(%(now)s::timestamptz, now())),
    changed_waiting_count = %(changed_waiting)s, complete_listing = %(complete_listing)s, error_code = %(error_code)s,
    error_message = %(error_message)s
WHERE id = %(id)s AND status = 'running'

-- Close a running pass.
UPDATE runs
SET status = %(status)s::run_status, finished_at = greatest(started_at, coalesce(%(now)s::timestamptz, now())), counts = %(counts)s::jsonb,
    error_code = %(error_code)s, error_message = %(error_message)s
WHERE id = %(id)s AND status = 'running'

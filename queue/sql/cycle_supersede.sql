-- Whoever opens a cycle holds its lock, so an older row that still says running was left behind.
UPDATE source_cycles
SET status = 'failed', finished_at = coalesce(%(now)s::timestamptz, now()), error_code = 'abandoned',
    error_message = 'the process that ran this cycle is gone'
WHERE source_id = %(source_id)s AND status = 'running'

-- The provider answered: forget the faults and lift the pause they caused.
UPDATE source
SET fault_streak = 0,
    pause_reason = CASE WHEN paused_by = 'faults' THEN NULL ELSE pause_reason END,
    paused_until = CASE WHEN paused_by = 'faults' THEN NULL ELSE paused_until END,
    paused_by = nullif(paused_by, 'faults')
WHERE id = %(id)s AND (fault_streak > 0 OR paused_by = 'faults')

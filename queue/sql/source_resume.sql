-- Lift any pause and forget the faults.
UPDATE source SET pause_reason = NULL, paused_by = NULL, paused_until = NULL, fault_streak = 0
WHERE id = %(id)s AND (pause_reason IS NOT NULL OR fault_streak > 0)

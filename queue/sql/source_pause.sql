-- A person pauses a source; it takes the place of a pause by faults.
UPDATE source SET pause_reason = %(reason)s, paused_by = CASE WHEN %(by)s::text = 'faults' THEN 'operator' ELSE %(by)s::text END,
    paused_until = %(until)s::timestamptz
WHERE id = %(id)s

-- How many changed targets wait: all of them, or those whose rest since the completion is over.
SELECT count(*)
FROM target_hot AS h
WHERE h.source_id = %(source_id)s AND h.state = 'done'
    AND target_changed(h.remote_modified_at, h.scan_remote_modified_at, h.scan_started_at, h.completed_at)
    AND (%(cooldown)s::interval IS NULL
        OR h.completed_at <= coalesce(%(now)s::timestamptz, now()) - %(cooldown)s::interval AND h.reserved_by IS NULL)

-- Admitted work of a source that could run now or runs: what backlog-first looks at, once, at a cycle's start.
SELECT (SELECT count(*) FROM target_hot AS h
        WHERE h.source_id = %(source_id)s AND h.state = 'pending' AND h.reserved_by IS NULL
            AND h.not_before <= coalesce(%(now)s::timestamptz, now()))
    + (SELECT count(*) FROM target_hot AS h WHERE h.source_id = %(source_id)s AND h.state = 'in_progress')

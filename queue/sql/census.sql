-- Targets by source and state, with what waits: one read of the hot table.
SELECT s.id, s.name, coalesce(c.by_state, '{}'), coalesce(w.claimable, 0), w.oldest, coalesce(x.changed, 0), w.deferral
FROM source AS s
LEFT JOIN (
    SELECT source_id, jsonb_object_agg(state, n) AS by_state
    FROM (SELECT source_id, state, count(*) AS n FROM target_hot GROUP BY source_id, state) AS g
    GROUP BY source_id
) AS c ON c.source_id = s.id
LEFT JOIN (
    SELECT h.source_id, count(*) FILTER (WHERE h.not_before <= m.at) AS claimable,
        max(m.at - h.not_before) FILTER (WHERE h.not_before <= m.at) AS oldest,
        max(m.at - coalesce(h.scan_started_at, h.not_before)) FILTER (WHERE h.state = 'deferred') AS deferral
    FROM target_hot AS h, (SELECT coalesce(%(now)s::timestamptz, now()) AS at) AS m
    WHERE h.state IN ('pending', 'deferred') AND h.reserved_by IS NULL
    GROUP BY h.source_id
) AS w ON w.source_id = s.id
LEFT JOIN (
    SELECT h.source_id, count(*) AS changed
    FROM target_hot AS h
    WHERE h.state = 'done' AND target_changed(h.remote_modified_at, h.scan_remote_modified_at, h.scan_started_at, h.completed_at)
    GROUP BY h.source_id
) AS x ON x.source_id = s.id
ORDER BY s.name

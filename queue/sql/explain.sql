-- Why a target is where it is: a code from a closed set, the earliest time of its next step, and how many are before it.
SELECT
    CASE
        WHEN h.reserved_by IS NOT NULL AND h.state IN ('pending', 'deferred', 'done') THEN 'reserved'
        WHEN h.state IN ('pending', 'deferred') AND s.pause_reason IS NOT NULL AND (s.paused_until IS NULL OR s.paused_until > m.at)
            THEN 'source_paused'
        WHEN h.state = 'pending' AND h.not_before > m.at THEN 'backing_off'
        WHEN h.state = 'pending' THEN 'waiting'
        WHEN h.state = 'deferred' AND h.not_before > m.at THEN 'deferred'
        WHEN h.state = 'deferred' THEN 'waiting'
        WHEN h.state = 'in_progress' AND h.lease_expires_at < m.at THEN 'lease_expired'
        WHEN h.state = 'in_progress' THEN 'scanning'
        WHEN h.state = 'done' AND target_changed(h.remote_modified_at, h.scan_remote_modified_at, h.scan_started_at, h.completed_at)
            THEN 'changed_waiting'
        WHEN h.state = 'done' THEN 'covered'
        ELSE h.state::text
    END,
    CASE
        WHEN h.state IN ('pending', 'deferred') AND s.pause_reason IS NOT NULL AND s.paused_until IS NULL THEN NULL
        WHEN h.state IN ('pending', 'deferred') THEN greatest(h.not_before, h.reserved_until, s.paused_until)
        WHEN h.state = 'in_progress' THEN h.lease_expires_at
        WHEN h.state = 'done' THEN h.recheck_at
    END,
    CASE WHEN h.state IN ('pending', 'deferred') AND h.reserved_by IS NULL THEN (
        SELECT count(*) FROM (
            SELECT FROM target_hot AS o
            WHERE o.source_id = h.source_id AND o.state IN ('pending', 'deferred') AND o.reserved_by IS NULL AND o.not_before <= m.at
                AND (o.rank, o.not_before, o.id) < (h.rank, h.not_before, h.id)
            LIMIT 10000
        ) AS ahead
    ) END
FROM target_hot AS h
JOIN source AS s ON s.id = h.source_id
CROSS JOIN (SELECT coalesce(%(now)s::timestamptz, now()) AS at) AS m
WHERE h.id = %(id)s

-- Admit changed targets again under the cap: done, changed, rested since their completion, and held by nobody. A row locked
-- elsewhere is passed over. Only the retry and scheduling fields of a pending claim are reset; marks, snapshots and history stay.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
picked AS MATERIALIZED (
    SELECT h.id
    FROM target_hot AS h
    WHERE h.source_id = %(source_id)s AND h.state = 'done'
        AND target_changed(h.remote_modified_at, h.scan_remote_modified_at, h.scan_started_at, h.completed_at)
        AND h.completed_at <= (SELECT at FROM moment) - %(cooldown)s::interval
        AND h.reserved_by IS NULL
    ORDER BY h.sort_key, h.id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE target_hot AS h
SET state = 'pending', admission = 'updated', attempts = 0, deferrals = 0, not_before = moment.at
FROM moment
WHERE h.id = ANY (ARRAY (SELECT id FROM picked))

-- The resolver settles an identity: the target goes back to its work (done when covered and nothing is owed), perhaps renamed.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
meant AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h WHERE h.id = %(id)s AND h.state = 'unresolved' FOR UPDATE
),
named AS (
    UPDATE target AS t
    SET normalized_target = coalesce(%(name)s::text, t.normalized_target), unresolved_reason = NULL,
        former_names = CASE WHEN %(name)s::text IS NULL OR %(name)s::text = t.normalized_target THEN t.former_names
            ELSE array_remove(t.former_names, t.normalized_target) || t.normalized_target END
    WHERE t.id = ANY (ARRAY (SELECT id FROM meant))
)
UPDATE target_hot AS h
SET state = CASE
        WHEN h.completed_at IS NOT NULL AND h.request_no = h.scan_request_no
            AND (h.scan_started_at IS NULL OR h.completed_at >= h.scan_started_at)
            AND (h.sort_key IS NOT NULL
                OR target_changed(h.remote_modified_at, h.scan_remote_modified_at, h.scan_started_at, h.completed_at) IS NOT TRUE)
            THEN 'done'
        ELSE 'pending'
    END::target_state,
    attempts = 0, not_before = moment.at
FROM moment
WHERE h.id = ANY (ARRAY (SELECT id FROM meant)) AND h.state = 'unresolved'
RETURNING h.state::text

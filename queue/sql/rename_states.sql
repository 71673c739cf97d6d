-- States after renaming: who lost its name is unresolved (a lease on it ends here: its worker looks at another's repository);
-- who was unresolved because its name was taken and is seen under another one goes back to its work. Relies on lock_targets.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
meant AS MATERIALIZED (
    SELECT u.id, u.lost, h.state, h.lease_token, h.lease_owner, h.scan_started_at, h.admission, h.attempts, h.source_id
    FROM unnest(%(ids)s::bigint[], %(lost)s::boolean[]) AS u (id, lost)
    JOIN target_hot AS h ON h.id = u.id
    WHERE u.lost AND h.state NOT IN ('unresolved', 'retired') OR NOT u.lost AND h.state = 'unresolved' AND u.id = ANY (%(settled)s::bigint[])
),
kept AS (
    INSERT INTO target_history (
        target_id, lease_token, claimed_at, finished_at, worker, source_id, outcome, admission, attempts, error_code
    )
    SELECT m.id, m.lease_token, m.scan_started_at, moment.at, m.lease_owner, m.source_id, 'unresolved', m.admission, m.attempts, 'name_taken'
    FROM meant AS m, moment WHERE m.state = 'in_progress'
)
UPDATE target_hot AS h
SET state = CASE
        WHEN m.lost THEN 'unresolved'
        WHEN h.completed_at IS NOT NULL AND h.request_no = h.scan_request_no
            AND (h.scan_started_at IS NULL OR h.completed_at >= h.scan_started_at)
            AND (h.sort_key IS NOT NULL OR target_changed(h.remote_modified_at, h.scan_remote_modified_at, h.scan_started_at, h.completed_at) IS NOT TRUE)
            THEN 'done'
        ELSE 'pending'
    END::target_state,
    lease_owner = NULL, lease_expires_at = NULL, deferred_reason = NULL, retire_reason = NULL, attempts = 0,
    not_before = CASE WHEN m.lost THEN h.not_before ELSE moment.at END
FROM meant AS m, moment
WHERE h.id = m.id

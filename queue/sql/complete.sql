-- Accept completions: by (id, lease_token), once; what is not returned was lost. Rows are locked in id order first.
--
-- A newer request puts the row to pending in this statement; a newer remote time alone leaves it done and changed, and the
-- capped requeue takes it. Work still owed by a scanner puts it back to pending with its attempts, so that a scanner which never
-- succeeds ends as failed. completed_at is written here and nowhere else, and only when nothing is owed.
--
-- What is handed in is looked up by its place in the array, never joined: no plan knows how many rows a CTE holds, and a join
-- of two of them compared every row with every other one (measured: 7 ms a batch of 100 instead of 3). An id stands in the
-- array once; an array that says nothing may be NULL. `lease_owner IS NOT NULL` is the state in_progress (hot_lease), said so
-- that the rows are found by their key and not by walking the leases of everybody.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
held AS MATERIALIZED (
    SELECT h.id, h.lease_token, h.lease_owner, h.source_id, h.admission, h.attempts, h.scan_started_at
    FROM target_hot AS h
    WHERE h.id = ANY (%(ids)s::bigint[]) AND h.lease_owner IS NOT NULL
        AND h.lease_token = (%(tokens)s::bigint[])[array_position(%(ids)s::bigint[], h.id)]
    ORDER BY h.id
    FOR UPDATE
),
ended AS (
    UPDATE target_hot AS h
    SET (state, attempts, not_before, completed_at, covered_revision, recheck_at, changed_at, sort_key, moves, yl_f, yl_m) = (
            SELECT
                CASE
                    WHEN h.retire_reason IS NOT NULL THEN 'retired'
                    WHEN h.request_no > h.scan_request_no THEN 'pending'
                    WHEN NOT u.owing THEN 'done'
                    WHEN h.attempts >= %(max_attempts)s THEN 'failed'
                    ELSE 'pending'
                END::target_state,
                CASE WHEN u.owing AND h.request_no = h.scan_request_no THEN h.attempts ELSE 0 END,
                CASE
                    WHEN h.request_no > h.scan_request_no THEN u.at
                    WHEN u.owing THEN u.at + (%(delays)s::double precision[])[u.place] * interval '1 second'
                    ELSE h.not_before
                END,
                CASE WHEN u.owing THEN h.completed_at ELSE u.at END,
                CASE WHEN u.owing THEN h.covered_revision ELSE coalesce((%(covered)s::bytea[])[u.place], h.covered_revision) END,
                (%(recheck)s::timestamptz[])[u.place],
                CASE WHEN a.changed THEN a.changed_at END,
                CASE WHEN a.changed THEN (
                    SELECT target_sort_key(
                        s.policy, a.changed_at, h.remote_modified_at, a.moves, h.mv_n, h.mv_t, h.yl_f, h.yl_m, s.yield_mean, s.gap_days, s.h_days
                    ) FROM source AS s WHERE s.id = h.source_id
                ) END,
                a.moves,
                CASE WHEN u.owing THEN h.yl_f ELSE 0.97 * h.yl_f END,
                CASE WHEN u.owing THEN h.yl_m ELSE 0.97 * h.yl_m + h.scan_moves END
            FROM (
                SELECT w.place, w.at, coalesce((%(owing)s::boolean[])[w.place], false) AS owing
                FROM (SELECT array_position(%(ids)s::bigint[], h.id) AS place, (SELECT at FROM moment) AS at OFFSET 0) AS w
                OFFSET 0
            ) AS u
            CROSS JOIN LATERAL (
                SELECT
                    CASE WHEN u.owing THEN h.changed_at IS NOT NULL
                        ELSE target_changed(h.remote_modified_at, h.scan_remote_modified_at, h.scan_started_at, u.at) IS TRUE
                    END AS changed,
                    CASE WHEN u.owing OR h.changed_at >= h.scan_started_at THEN h.changed_at ELSE u.at END AS changed_at,
                    CASE WHEN u.owing THEN h.moves ELSE greatest(0, h.moves - h.scan_moves) END AS moves
                OFFSET 0
            ) AS a
        ),
        admission = CASE WHEN h.request_no > h.scan_request_no THEN 'requested' ELSE h.admission END,
        deferrals = 0, lease_owner = NULL, lease_expires_at = NULL, scan_moves = 0
    WHERE h.id = ANY (ARRAY (SELECT id FROM held))
        AND h.lease_token = (%(tokens)s::bigint[])[array_position(%(ids)s::bigint[], h.id)] AND h.lease_owner IS NOT NULL
    RETURNING h.id, h.lease_token, h.state, h.source_id
),
retired AS (
    UPDATE target AS t
    SET retired_at = moment.at
    FROM moment
    WHERE t.id = ANY (ARRAY (SELECT id FROM ended WHERE state = 'retired'))
),
exhausted AS (
    UPDATE target AS t
    SET last_error_code = 'owed', last_error = 'a scanner still owes its work after the last attempt', last_error_at = moment.at
    FROM moment
    WHERE t.id = ANY (ARRAY (SELECT id FROM ended WHERE state = 'failed'))
),
kept AS (
    INSERT INTO target_history (
        target_id, lease_token, claimed_at, finished_at, worker, source_id, outcome, admission, findings, attempts, result
    )
    SELECT x.id, x.lease_token, x.scan_started_at, (SELECT at FROM moment), x.lease_owner, x.source_id,
        CASE WHEN (%(owing)s::boolean[])[x.place] IS TRUE THEN 'owing' ELSE 'done' END::claim_outcome, x.admission,
        coalesce((%(findings)s::integer[])[x.place], 0), x.attempts, (%(results)s::text[])[x.place]
    FROM (SELECT h.*, array_position(%(ids)s::bigint[], h.id) AS place FROM held AS h OFFSET 0) AS x
    WHERE x.id = ANY (ARRAY (SELECT id FROM ended))
)
SELECT id, lease_token, state::text FROM ended

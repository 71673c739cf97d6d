-- Accept completions: by (id, lease_token), once; what is not returned was lost. Rows are locked in id order first.
--
-- A newer request puts the row to pending in this statement; a newer remote time alone leaves it done and changed, and the
-- capped requeue takes it. Work still owed by a scanner puts it back to pending with its attempts, so that a scanner which never
-- succeeds ends as failed. completed_at is written here and nowhere else, and only when nothing is owed.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
handed AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(tokens)s::bigint[], %(covered)s::bytea[], %(recheck)s::timestamptz[], %(owing)s::boolean[],
        %(delays)s::double precision[], %(findings)s::integer[], %(results)s::text[]
    ) AS u (id, token, covered, recheck_at, owing, delay, findings, result)
),
held AS MATERIALIZED (
    SELECT h.*
    FROM target_hot AS h
    WHERE h.id = ANY (%(ids)s::bigint[]) AND h.state = 'in_progress'
    ORDER BY h.id
    FOR UPDATE
),
-- What completing makes of each row, from its locked version: the target of an UPDATE cannot be used by LATERAL.
judged AS MATERIALIZED (
    SELECT u.*, after.changed, after.changed_at, after.moves, CASE WHEN after.changed THEN target_sort_key(
        s.policy, after.changed_at, x.remote_modified_at, after.moves, x.mv_n, x.mv_t, x.yl_f, x.yl_m, s.yield_mean, s.gap_days, s.h_days
    ) END AS sort_key
    FROM moment, handed AS u
    JOIN held AS x ON x.id = u.id AND x.lease_token = u.token
    JOIN source AS s ON s.id = x.source_id
    CROSS JOIN LATERAL (
        SELECT
            CASE WHEN u.owing THEN x.changed_at IS NOT NULL
                ELSE target_changed(x.remote_modified_at, x.scan_remote_modified_at, x.scan_started_at, moment.at) IS TRUE
            END AS changed,
            CASE WHEN u.owing OR x.changed_at >= x.scan_started_at THEN x.changed_at ELSE moment.at END AS changed_at,
            CASE WHEN u.owing THEN x.moves ELSE greatest(0, x.moves - x.scan_moves) END AS moves
    ) AS after
),
ended AS (
    UPDATE target_hot AS h
    SET state = CASE
            WHEN h.retire_reason IS NOT NULL THEN 'retired'
            WHEN h.request_no > h.scan_request_no THEN 'pending'
            WHEN NOT u.owing THEN 'done'
            WHEN h.attempts >= %(max_attempts)s THEN 'failed'
            ELSE 'pending'
        END::target_state,
        admission = CASE WHEN h.request_no > h.scan_request_no THEN 'requested' ELSE h.admission END,
        attempts = CASE WHEN u.owing AND h.request_no = h.scan_request_no THEN h.attempts ELSE 0 END,
        deferrals = 0,
        not_before = CASE
            WHEN h.request_no > h.scan_request_no THEN moment.at
            WHEN u.owing THEN moment.at + u.delay * interval '1 second'
            ELSE h.not_before
        END,
        lease_owner = NULL, lease_expires_at = NULL,
        completed_at = CASE WHEN u.owing THEN h.completed_at ELSE moment.at END,
        covered_revision = CASE WHEN u.owing THEN h.covered_revision ELSE coalesce(u.covered, h.covered_revision) END,
        recheck_at = u.recheck_at,
        changed_at = CASE WHEN u.changed THEN u.changed_at END,
        sort_key = u.sort_key,
        moves = u.moves,
        scan_moves = 0,
        yl_f = CASE WHEN u.owing THEN h.yl_f ELSE 0.97 * h.yl_f END,
        yl_m = CASE WHEN u.owing THEN h.yl_m ELSE 0.97 * h.yl_m + h.scan_moves END
    FROM moment, judged AS u
    WHERE h.id = ANY (ARRAY (SELECT id FROM held)) AND h.id = u.id AND h.lease_token = u.token AND h.state = 'in_progress'
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
    SELECT e.id, e.lease_token, x.scan_started_at, moment.at, x.lease_owner, e.source_id,
        CASE WHEN u.owing THEN 'owing' ELSE 'done' END::claim_outcome, x.admission, u.findings, x.attempts, u.result
    FROM ended AS e
    JOIN held AS x ON x.id = e.id
    JOIN handed AS u ON u.id = e.id AND u.token = e.lease_token
    CROSS JOIN moment
)
SELECT id, lease_token, state::text FROM ended

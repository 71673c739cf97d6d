-- Give expired leases back: pending, or failed with lease_expired when the attempts are used up; retired where that was
-- waiting for the claim's end; a request that came in the meantime always wins over failing. One statement that looks at state,
-- expiry and token under the row's lock, so that a completion at the same moment has exactly one winner.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
expired AS MATERIALIZED (
    SELECT h.id, h.lease_token, h.lease_owner, h.lease_expires_at, h.admission, h.attempts, h.scan_started_at
    FROM target_hot AS h
    WHERE h.state = 'in_progress' AND h.lease_expires_at < (SELECT at FROM moment)
    ORDER BY h.id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
ended AS (
    UPDATE target_hot AS h
    SET state = CASE
            WHEN h.retire_reason IS NOT NULL THEN 'retired'
            WHEN h.request_no > h.scan_request_no THEN 'pending'
            WHEN h.attempts >= %(max_attempts)s THEN 'failed'
            ELSE 'pending'
        END::target_state,
        admission = CASE WHEN h.request_no > h.scan_request_no THEN 'requested' ELSE h.admission END,
        attempts = CASE WHEN h.request_no > h.scan_request_no THEN 0 ELSE h.attempts END,
        not_before = greatest(h.not_before, moment.at), lease_owner = NULL, lease_expires_at = NULL
    FROM moment
    WHERE h.id = ANY (ARRAY (SELECT e.id FROM expired AS e)) AND h.state = 'in_progress' AND h.lease_expires_at < moment.at
    RETURNING h.id, h.state, h.source_id, moment.at
),
told AS MATERIALIZED (
    SELECT e.id, e.state, e.source_id, e.at, x.lease_token, x.lease_owner, x.lease_expires_at, x.admission, x.attempts, x.scan_started_at
    FROM ended AS e JOIN expired AS x ON x.id = e.id
),
noted AS (
    UPDATE target AS t
    SET last_error_code = 'lease_expired', last_error = 'the worker vanished while it held the lease', last_error_at = e.at,
        retired_at = CASE WHEN e.state = 'retired' THEN e.at ELSE t.retired_at END
    FROM told AS e
    WHERE t.id = e.id AND e.state IN ('failed', 'retired')
),
kept AS (
    INSERT INTO target_history (
        target_id, lease_token, claimed_at, finished_at, worker, source_id, outcome, admission, attempts, error_code
    )
    SELECT e.id, e.lease_token, e.scan_started_at, e.at, e.lease_owner, e.source_id, 'expired', e.admission, e.attempts, 'lease_expired'
    FROM told AS e
)
SELECT state::text, at - lease_expires_at FROM told

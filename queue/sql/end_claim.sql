-- End claims without a completion: fail, defer or release, each by (id, lease_token); what is not returned was lost. Rows are locked
-- one by one in id order, then changed through their key.
--
-- defer and release give the attempt back. A request that came during the claim revives what would fail (attempts reset) and
-- keeps a deferral's time. A row that was to be retired is retired now. last_error lies in the cold row.
-- `lease_owner IS NOT NULL` is in_progress by a check; written so, the planner cannot take the index of all leases for the key.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
held AS MATERIALIZED (
    SELECT u.*, h.lease_owner, h.admission, h.attempts, h.scan_started_at
    FROM (
        SELECT * FROM unnest(
            %(ids)s::bigint[], %(tokens)s::bigint[], %(acts)s::text[], %(delays)s::double precision[], %(untils)s::timestamptz[],
            %(codes)s::text[], %(messages)s::text[]
        ) AS x (id, token, act, delay, until, code, message)
        ORDER BY id
    ) AS u
    CROSS JOIN LATERAL (
        SELECT q.* FROM target_hot AS q WHERE q.id = u.id AND q.lease_token = u.token AND q.lease_owner IS NOT NULL FOR UPDATE
    ) AS h
),
ended AS (
    UPDATE target_hot AS h
    SET state = CASE
            WHEN h.retire_reason IS NOT NULL THEN 'retired'
            WHEN u.act = 'defer' THEN 'deferred'
            WHEN u.act = 'release' OR h.request_no > h.scan_request_no THEN 'pending'
            WHEN u.act = 'permanent' OR h.attempts >= %(max_attempts)s THEN 'failed'
            ELSE 'pending'
        END::target_state,
        admission = CASE WHEN h.request_no > h.scan_request_no THEN 'requested' ELSE h.admission END,
        attempts = CASE
            WHEN u.act IN ('defer', 'release') THEN h.attempts - 1
            WHEN h.request_no > h.scan_request_no THEN 0
            ELSE h.attempts
        END,
        deferrals = CASE WHEN u.act = 'defer' THEN least(h.deferrals, 2147483646) + 1 ELSE h.deferrals END,
        deferred_reason = CASE WHEN u.act = 'defer' AND h.retire_reason IS NULL THEN u.code END,
        not_before = CASE
            WHEN h.request_no > h.scan_request_no AND u.act NOT IN ('defer', 'release') THEN moment.at
            ELSE greatest(moment.at, coalesce(u.until, moment.at + u.delay * interval '1 second'))
        END,
        lease_owner = NULL, lease_expires_at = NULL
    FROM moment, held AS u
    WHERE h.id = u.id AND h.lease_token = u.token AND h.lease_owner IS NOT NULL
    RETURNING h.id, h.lease_token, h.state, h.source_id, moment.at, u.scan_started_at, u.lease_owner, u.act, u.code, u.message, u.admission,
        u.attempts
),
noted AS (
    UPDATE target AS t
    SET last_error_code = CASE WHEN e.act = 'release' THEN t.last_error_code ELSE e.code END,
        last_error = CASE WHEN e.act = 'release' THEN t.last_error ELSE e.message END,
        last_error_at = CASE WHEN e.act = 'release' THEN t.last_error_at ELSE e.at END,
        retired_at = CASE WHEN e.state = 'retired' THEN e.at ELSE t.retired_at END
    FROM ended AS e
    WHERE t.id = e.id AND (e.act <> 'release' OR e.state = 'retired')
),
kept AS (
    INSERT INTO target_history (
        target_id, lease_token, claimed_at, finished_at, worker, source_id, outcome, admission, attempts, error_code, error
    )
    SELECT e.id, e.lease_token, e.scan_started_at, e.at, e.lease_owner, e.source_id,
        CASE
            WHEN e.act = 'defer' THEN 'deferred'
            WHEN e.act = 'release' THEN 'released'
            WHEN e.state = 'failed' THEN 'failed'
            ELSE 'retried'
        END::claim_outcome, e.admission, e.attempts, e.code, e.message
    FROM ended AS e
)
SELECT id, lease_token, state::text FROM ended

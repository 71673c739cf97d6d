-- End claims without a completion: fail, defer or release, each by (id, lease_token); what is not returned was lost.
--
-- defer and release give the attempt back. A request that came during the claim revives what would fail (attempts reset) and
-- keeps a deferral's time. A row that was to be retired is retired now. last_error lies in the cold row.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
handed AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)s::bigint[], %(tokens)s::bigint[], %(acts)s::text[], %(delays)s::double precision[], %(untils)s::timestamptz[],
        %(codes)s::text[], %(messages)s::text[]
    ) AS u (id, token, act, delay, until, code, message)
),
held AS MATERIALIZED (
    SELECT h.id, h.lease_owner, h.admission, h.attempts, h.scan_started_at
    FROM target_hot AS h
    WHERE h.id = ANY (%(ids)s::bigint[]) AND h.state = 'in_progress'
    ORDER BY h.id
    FOR UPDATE
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
    FROM moment, handed AS u
    WHERE h.id = ANY (ARRAY (SELECT id FROM held)) AND h.id = u.id AND h.lease_token = u.token AND h.state = 'in_progress'
    RETURNING h.id, h.lease_token, h.state, h.source_id
),
noted AS (
    UPDATE target AS t
    SET last_error_code = CASE WHEN u.act = 'release' THEN t.last_error_code ELSE u.code END,
        last_error = CASE WHEN u.act = 'release' THEN t.last_error ELSE u.message END,
        last_error_at = CASE WHEN u.act = 'release' THEN t.last_error_at ELSE moment.at END,
        retired_at = CASE WHEN e.state = 'retired' THEN moment.at ELSE t.retired_at END
    FROM ended AS e, handed AS u, moment
    WHERE t.id = ANY (ARRAY (SELECT id FROM held)) AND e.id = t.id AND u.id = e.id AND u.token = e.lease_token AND (u.act <> 'release' OR e.state = 'retired')
),
kept AS (
    INSERT INTO target_history (
        target_id, lease_token, claimed_at, finished_at, worker, source_id, outcome, admission, attempts, error_code, error
    )
    SELECT e.id, e.lease_token, x.scan_started_at, moment.at, x.lease_owner, e.source_id,
        CASE
            WHEN u.act = 'defer' THEN 'deferred'
            WHEN u.act = 'release' THEN 'released'
            WHEN e.state = 'failed' THEN 'failed'
            ELSE 'retried'
        END::claim_outcome, x.admission, x.attempts, u.code, u.message
    FROM ended AS e
    JOIN held AS x ON x.id = e.id
    JOIN handed AS u ON u.id = e.id AND u.token = e.lease_token
    CROSS JOIN moment
)
SELECT id, lease_token, state::text FROM ended

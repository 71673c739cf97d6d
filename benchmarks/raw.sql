-- The raw side of figures 4 to 7: the least that claims 100 targets and completes them on the product's own tables,
-- with the same indexes, a history row each, fenced by the lease token, as one pgbench script:
--
--     pgbench -n -M prepared -c 1 -f benchmarks/raw.sql
--
-- The client is told what to scan: name and address of each target come over the wire. Left out is all that makes a queue: quotas, ranks, limits, coverage, findings, requests, retirement, low-water marks.
WITH picked AS MATERIALIZED (
    SELECT id FROM target_hot
    WHERE source_id = 1 AND rank = 4 AND state IN ('pending', 'deferred') AND reserved_by IS NULL AND not_before <= now()
    ORDER BY not_before, id
    FOR UPDATE SKIP LOCKED
    LIMIT 100
), leased AS (
    UPDATE target_hot
    SET state = 'in_progress',
        lease_owner = '00000000-0000-0000-0000-000000000001',
        lease_token = lease_token + 1,
        lease_expires_at = now() + interval '60 seconds',
        attempts = attempts + 1,
        scan_started_at = now(),
        scan_remote_modified_at = remote_modified_at,
        scan_request_no = request_no
    WHERE id = ANY (ARRAY (SELECT id FROM picked))
    RETURNING id, lease_token
)
SELECT
    array_agg(leased.id) AS ids,
    array_agg(leased.lease_token) AS tokens,
    array_agg(target.normalized_target) AS names,
    array_agg(target.address) AS addresses
FROM leased
JOIN target USING (id) \gset

WITH handed AS (
    SELECT id, lease_token FROM unnest((:ids)::bigint[], (:tokens)::bigint[]) AS handed (id, lease_token)
), finished AS (
    UPDATE target_hot AS hot
    SET state = 'done',
        completed_at = now(),
        lease_owner = NULL,
        lease_expires_at = NULL,
        attempts = 0
    FROM handed
    WHERE hot.id = handed.id AND hot.lease_token = handed.lease_token AND hot.state = 'in_progress'
    RETURNING hot.id, hot.lease_token, hot.scan_started_at, hot.source_id, hot.admission
)
INSERT INTO target_history (
    target_id, lease_token, claimed_at, finished_at, worker, source_id, outcome, admission, attempts, result
)
SELECT
    id, lease_token, scan_started_at, now(), '00000000-0000-0000-0000-000000000001', source_id, 'done', admission, 1, 'unchanged'
FROM finished;

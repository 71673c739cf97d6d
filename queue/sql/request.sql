-- Raise the request counter under the row's lock; what follows depends on the state (queue.md, "Marks and snapshots").
-- A row that already waits as requested keeps its place, or it would be pushed back by every further request.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
meant AS MATERIALIZED (
    SELECT h.id, h.state, h.request_no > h.scan_request_no AS waiting, h.admission
    FROM target_hot AS h
    WHERE h.id = ANY (%(ids)s::bigint[])
    ORDER BY h.id
    FOR UPDATE
),
marked AS (
    UPDATE target_hot AS h
    SET request_no = h.request_no + 1, requested_at = moment.at,
        state = CASE
            WHEN h.state IN ('done', 'failed') OR h.state = 'deferred' AND %(now_flag)s THEN 'pending'
            ELSE h.state
        END::target_state,
        admission = CASE WHEN h.state = 'in_progress' THEN h.admission ELSE 'requested' END,
        attempts = CASE WHEN h.state IN ('done', 'failed') THEN 0 ELSE h.attempts END,
        deferred_reason = CASE WHEN h.state = 'deferred' AND NOT %(now_flag)s THEN h.deferred_reason END,
        not_before = CASE
            WHEN h.state IN ('done', 'failed') OR h.state = 'deferred' AND %(now_flag)s THEN moment.at
            WHEN h.state = 'pending' AND (h.admission <> 'requested' OR h.not_before > moment.at) THEN moment.at
            ELSE h.not_before
        END
    FROM moment
    WHERE h.id = ANY (ARRAY (SELECT id FROM meant)) AND h.state <> 'unresolved'
    RETURNING h.id, h.state
)
SELECT m.id, r.id IS NOT NULL, m.waiting, coalesce(r.state, m.state)::text
FROM meant AS m LEFT JOIN marked AS r ON r.id = m.id
ORDER BY m.id

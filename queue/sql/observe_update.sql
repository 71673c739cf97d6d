-- Move the marks of known targets forward, never back; rows are locked by lock_targets before, so clock_timestamp() is ordered.
--
-- A digest that differs makes the observation's time: the database clock, at least the stored time and a microsecond. A retired
-- target that is seen again is done when it has a completion and owes nothing, else pending; one that waits for its claim's end to be
-- retired no longer does. A claim in progress keeps its
-- snapshot; what moves during it stays ahead of it.
WITH page AS MATERIALIZED (
    SELECT u.id, u.revision, u.digest, CASE WHEN u.at >= '1990-01-01 00:00:00+00'
        AND u.at <= coalesce(%(now)s::timestamptz, now()) + %(skew)s::interval THEN u.at END AS at
    FROM unnest(%(ids)s::bigint[], %(revisions)s::bytea[], %(times)s::timestamptz[], %(digests)s::boolean[]) AS u (id, revision, at, digest)
),
judged AS MATERIALIZED (
    SELECT p.id, p.revision, v.*, s.policy, s.yield_mean, s.gap_days, s.h_days
    FROM page AS p
    CROSS JOIN LATERAL (SELECT q.* FROM target_hot AS q WHERE q.id = p.id OFFSET 0) AS h
    CROSS JOIN LATERAL (SELECT q.* FROM source AS q WHERE q.id = h.source_id OFFSET 0) AS s
    CROSS JOIN LATERAL (
    SELECT a.*, CASE
        WHEN target_changed(a.remote, h.scan_remote_modified_at, h.scan_started_at, h.completed_at) IS NOT TRUE THEN h.changed_at
        WHEN a.moved AND h.state = 'in_progress' AND h.changed_at < h.scan_started_at THEN a.wall
        ELSE coalesce(h.changed_at, a.wall)
    END AS changed_at
    FROM (
        SELECT b.*,
            CASE WHEN b.moved THEN least(h.moves, 2147483646) + 1 ELSE h.moves END AS moves,
            CASE WHEN b.moved THEN h.mv_n * b.k + 1 ELSE h.mv_n END::real AS mv_n,
            CASE WHEN b.moved THEN h.mv_t * b.k + (120 / ln(2)) * (1 - b.k) ELSE h.mv_t END::real AS mv_t
        FROM (
            SELECT c.wall, c.remote, c.remote IS DISTINCT FROM h.remote_modified_at AS moved,
                h.retire_reason IS NOT NULL AND %(admit)s AS back,
                h.completed_at IS NOT NULL AND h.request_no = h.scan_request_no
                    AND (h.scan_started_at IS NULL OR h.completed_at >= h.scan_started_at) AS settled,
                power(2, -greatest(0, extract(epoch FROM c.wall - coalesce(h.mv_at, c.wall))::double precision) / 86400 / 120) AS k
            FROM (
                SELECT w.wall, CASE
                    WHEN p.digest AND p.revision IS DISTINCT FROM h.observed_revision
                        THEN greatest(w.wall, h.remote_modified_at + interval '1 microsecond')
                    ELSE greatest(h.remote_modified_at, p.at)
                END AS remote
                FROM (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS wall) AS w
            ) AS c
        ) AS b
    ) AS a
) AS v
)
UPDATE target_hot AS h
SET remote_modified_at = v.remote, observed_revision = coalesce(v.revision, h.observed_revision),
    changed_at = v.changed_at, moves = v.moves, mv_n = v.mv_n, mv_t = v.mv_t, mv_at = CASE WHEN v.moved THEN v.wall ELSE h.mv_at END,
    sort_key = target_sort_key(v.policy, v.changed_at, v.remote, v.moves, v.mv_n, v.mv_t, h.yl_f, h.yl_m, v.yield_mean, v.gap_days, v.h_days),
    state = CASE WHEN NOT v.back OR h.state <> 'retired' THEN h.state WHEN v.settled THEN 'done' ELSE 'pending' END::target_state,
    retire_reason = CASE WHEN v.back THEN NULL ELSE h.retire_reason END,
    admission = CASE WHEN h.state <> 'retired' OR NOT v.back THEN h.admission
        WHEN h.request_no > h.scan_request_no THEN 'requested'
        WHEN h.completed_at IS NULL THEN 'new' ELSE h.admission END,
    attempts = CASE WHEN v.back AND h.state = 'retired' THEN 0 ELSE h.attempts END,
    not_before = CASE WHEN v.back AND h.state = 'retired' THEN v.wall ELSE h.not_before END
FROM judged AS v
WHERE h.id = v.id
    AND (v.moved OR v.back OR v.revision IS NOT NULL AND v.revision IS DISTINCT FROM h.observed_revision)
RETURNING h.id, v.moved, v.back, h.state::text

-- Another policy: compute the sort key of what has changed anew (the read never changes). Locked in id order.
WITH changed AS MATERIALIZED (
    SELECT id FROM target_hot WHERE source_id = %(id)s AND changed_at IS NOT NULL ORDER BY id FOR UPDATE
)
UPDATE target_hot AS h
SET sort_key = target_sort_key(
    s.policy, h.changed_at, h.remote_modified_at, h.moves, h.mv_n, h.mv_t, h.yl_f, h.yl_m, s.yield_mean, s.gap_days, s.h_days
)
FROM source AS s
WHERE h.id = ANY (ARRAY (SELECT id FROM changed)) AND s.id = h.source_id

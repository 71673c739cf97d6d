-- Retire targets: now, or (leased) when the claim ends. The row and its findings are kept.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
meant AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h WHERE h.id = ANY (%(ids)s::bigint[]) AND h.state <> 'retired' AND h.retire_reason IS NULL
    ORDER BY h.id FOR UPDATE
),
ended AS (
    UPDATE target_hot AS h
    SET retire_reason = %(reason)s, deferred_reason = NULL,
        state = CASE WHEN h.state = 'in_progress' THEN 'in_progress' ELSE 'retired' END::target_state
    WHERE h.id = ANY (ARRAY (SELECT id FROM meant)) AND h.state <> 'retired'
    RETURNING h.id, h.state
),
dated AS (
    UPDATE target AS t SET retired_at = moment.at, absent_since = NULL, gone_first_at = NULL
    FROM moment WHERE t.id = ANY (ARRAY (SELECT id FROM ended WHERE state = 'retired'))
)
SELECT id, state::text FROM ended

-- The raw side of figure 1: an anti-join first, so that only rows with a newer time are written at all. Lookups by key, one a row:
-- the stage has no statistics, and a hash join would read the whole table for every page.
WITH newer AS MATERIALIZED (
    SELECT known.id, stage.remote_modified_at
    FROM stage
    CROSS JOIN LATERAL (
        SELECT hot.id, hot.remote_modified_at
        FROM target
        CROSS JOIN LATERAL (SELECT id, remote_modified_at FROM target_hot WHERE target_hot.id = target.id OFFSET 0) AS hot
        WHERE target.source_id = %(source_id)s AND target.normalized_target = stage.normalized_target
        OFFSET 0
    ) AS known
    WHERE known.remote_modified_at IS NULL OR known.remote_modified_at < stage.remote_modified_at
)
UPDATE target_hot AS hot
SET remote_modified_at = newer.remote_modified_at,
    moves = hot.moves + 1,
    changed_at = coalesce(hot.changed_at, now()),
    sort_key = coalesce(hot.sort_key, extract(epoch FROM now())::double precision)
FROM newer
WHERE hot.id = ANY (ARRAY (SELECT id FROM newer)) AND hot.id = newer.id

-- The raw side of figure 1: an anti-join first, so that only rows with a newer time are written at all.
WITH newer AS (
    SELECT hot.id, stage.remote_modified_at
    FROM stage
    JOIN target ON target.source_id = %(source_id)s AND target.normalized_target = stage.normalized_target
    JOIN target_hot AS hot ON hot.id = target.id
    WHERE hot.remote_modified_at IS NULL OR hot.remote_modified_at < stage.remote_modified_at
)
UPDATE target_hot AS hot
SET remote_modified_at = newer.remote_modified_at,
    moves = hot.moves + 1,
    changed_at = coalesce(hot.changed_at, now()),
    sort_key = coalesce(hot.sort_key, extract(epoch FROM now())::double precision)
FROM newer
WHERE hot.id = newer.id

-- The raw side of figure 3: one INSERT … SELECT … ON CONFLICT out of the stage, on the product's two tables.
WITH added AS (
    INSERT INTO target (source_id, normalized_target, display_name, address, provider_id, discovered_at)
    SELECT %(source_id)s, normalized_target, display_name, address, provider_id, now()
    FROM stage
    ON CONFLICT (source_id, normalized_target) DO NOTHING
    RETURNING id, normalized_target
)
INSERT INTO target_hot (id, source_id, state, not_before, remote_modified_at)
SELECT added.id, %(source_id)s, 'pending', now(), stage.remote_modified_at
FROM added
JOIN stage USING (normalized_target)

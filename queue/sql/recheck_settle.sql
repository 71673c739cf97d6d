-- These checks were made. Locked in id order.
WITH meant AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h WHERE h.id = ANY (%(ids)s::bigint[]) AND h.recheck_at IS NOT NULL ORDER BY h.id FOR UPDATE
)
UPDATE target_hot SET recheck_at = NULL WHERE id = ANY (ARRAY (SELECT id FROM meant))

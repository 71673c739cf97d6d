-- The registry walk saw these. Written by that walk alone.
WITH meant AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h WHERE h.id = ANY (%(ids)s::bigint[]) ORDER BY h.id FOR UPDATE
)
UPDATE target SET last_refreshed_at = coalesce(%(now)s::timestamptz, now()) WHERE id = ANY (ARRAY (SELECT id FROM meant))

-- Missed for the first time (or again after it was written): this listing is the first of the two from now on. The hot rows are
-- locked first, in id order: their lock is the target's.
WITH meant AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h WHERE h.id = ANY (%(ids)s::bigint[]) ORDER BY h.id FOR UPDATE
)
UPDATE target SET absent_since = %(began_at)s WHERE id = ANY (ARRAY (SELECT id FROM meant))

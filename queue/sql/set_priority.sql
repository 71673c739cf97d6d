-- An operator's priority: 0 first. Only rows that differ are written.
WITH meant AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h WHERE h.id = ANY (%(ids)s::bigint[]) AND h.priority <> %(priority)s ORDER BY h.id FOR UPDATE
)
UPDATE target_hot AS h SET priority = %(priority)s
WHERE h.id = ANY (ARRAY (SELECT id FROM meant))
RETURNING h.id

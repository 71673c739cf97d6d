-- Let held targets go: all of them, or one holder's.
WITH meant AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h
    WHERE h.id = ANY (%(ids)s::bigint[]) AND h.reserved_by IS NOT NULL AND (%(by)s::text IS NULL OR h.reserved_by = %(by)s::text)
    ORDER BY h.id FOR UPDATE
)
UPDATE target_hot SET reserved_by = NULL, reserved_until = NULL WHERE id = ANY (ARRAY (SELECT id FROM meant))
RETURNING id

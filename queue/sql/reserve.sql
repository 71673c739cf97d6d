-- Hold targets: claims and requeues stay away until the time. Leased, retired and others' held rows are left alone.
WITH meant AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h
    WHERE h.id = ANY (%(ids)s::bigint[]) AND h.state NOT IN ('in_progress', 'retired')
        AND (h.reserved_by IS NULL OR h.reserved_by = %(by)s OR h.reserved_until < coalesce(%(now)s::timestamptz, now()))
    ORDER BY h.id FOR UPDATE
)
UPDATE target_hot SET reserved_by = %(by)s, reserved_until = coalesce(%(now)s::timestamptz, now()) + %(period)s::interval
WHERE id = ANY (ARRAY (SELECT id FROM meant)) AND state NOT IN ('in_progress', 'retired')
RETURNING id

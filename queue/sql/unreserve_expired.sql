-- End reservations whose time is over; found through target_reserved, so it costs nothing when there are none.
WITH over AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h
    WHERE h.reserved_by IS NOT NULL AND h.reserved_until < coalesce(%(now)s::timestamptz, now())
    ORDER BY h.id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)
UPDATE target_hot SET reserved_by = NULL, reserved_until = NULL WHERE id = ANY (ARRAY (SELECT id FROM over))

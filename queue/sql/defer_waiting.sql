-- An operator puts waiting targets off; no claim is touched.
WITH meant AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h WHERE h.id = ANY (%(ids)s::bigint[]) AND h.state IN ('pending', 'deferred') ORDER BY h.id FOR UPDATE
)
UPDATE target_hot AS h
SET state = 'deferred', deferred_reason = %(reason)s,
    not_before = coalesce(%(until)s::timestamptz, coalesce(%(now)s::timestamptz, now()) + %(delay)s::interval)
WHERE h.id = ANY (ARRAY (SELECT id FROM meant)) AND h.state IN ('pending', 'deferred')
RETURNING h.id

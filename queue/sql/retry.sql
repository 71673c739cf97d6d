-- An operator's retry: failed targets start again with all their attempts; the error stays to be read until the next one.
WITH meant AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h WHERE h.id = ANY (%(ids)s::bigint[]) AND h.state = 'failed' ORDER BY h.id FOR UPDATE
)
UPDATE target_hot AS h
SET state = 'pending', attempts = 0, not_before = coalesce(%(now)s::timestamptz, now())
WHERE h.id = ANY (ARRAY (SELECT id FROM meant)) AND h.state = 'failed'
RETURNING h.id

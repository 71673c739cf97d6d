-- Renew every lease of a process, by its token; what is not returned is lost. The lease lies in no index, so this stays
-- a heap-only update. Rows are locked in id order, as every writer of several rows does.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at),
seen AS (
    UPDATE worker SET last_seen_at = moment.at, sleeping_until = NULL FROM moment WHERE uuid = %(worker)s
),
held AS MATERIALIZED (
    SELECT h.id
    FROM target_hot AS h
    WHERE h.id = ANY (%(ids)s::bigint[]) AND h.state = 'in_progress'
    ORDER BY h.id
    FOR UPDATE
)
UPDATE target_hot AS h
SET lease_expires_at = greatest(h.lease_expires_at, moment.at + %(lease)s::interval)
FROM moment, unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS u (id, token)
WHERE h.id = ANY (ARRAY (SELECT id FROM held)) AND h.id = u.id AND h.lease_token = u.token AND h.state = 'in_progress'
    AND h.lease_owner = %(worker)s
RETURNING h.id, h.lease_token

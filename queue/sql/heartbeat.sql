-- Renew every lease of a process, by its token; what is not returned is lost. The lease lies in no index, so this stays
-- a heap-only update. Rows are locked in id order, as every writer of several rows does.
-- `lease_owner IS NOT NULL` is in_progress by a check; written so, the planner cannot take the index of all leases for the key.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS at),
seen AS (
    UPDATE worker SET last_seen_at = moment.at FROM moment WHERE uuid = %(worker)s
),
held AS MATERIALIZED (
    SELECT u.id, u.token
    FROM (SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS x (id, token) ORDER BY id) AS u
    CROSS JOIN LATERAL (
        SELECT FROM target_hot AS q
        WHERE q.id = u.id AND q.lease_token = u.token AND q.lease_owner = %(worker)s
        FOR UPDATE
    ) AS h
)
UPDATE target_hot AS h
SET lease_expires_at = greatest(h.lease_expires_at, moment.at + %(lease)s::interval)
FROM moment, held AS u
WHERE h.id = u.id AND h.lease_token = u.token AND h.lease_owner IS NOT NULL
RETURNING h.id, h.lease_token

-- How many more leases each source, and all together (id 0), may hold now. Read after claim_lock.
WITH held AS (
    SELECT source_id, count(*) AS n FROM target_hot WHERE state = 'in_progress' GROUP BY source_id
)
SELECT s.id, coalesce(h.n, 0), greatest(0, s.max_in_progress - coalesce(h.n, 0))
FROM source AS s
LEFT JOIN held AS h ON h.source_id = s.id
WHERE %(sources)s::integer[] IS NULL OR s.id = ANY (%(sources)s::integer[])
UNION ALL
SELECT 0, coalesce(sum(n), 0)::bigint, greatest(0, %(most)s::bigint - coalesce(sum(n), 0)::bigint)
FROM held

-- How many leases each source, and all together (id 0), hold and may take more; NULL = no limit. Read after claim_lock, in a statement
-- of its own.
WITH held AS (
    SELECT source_id, count(*) AS n FROM target_hot WHERE state = 'in_progress' GROUP BY source_id
)
SELECT s.id, coalesce(h.n, 0), CASE WHEN s.max_in_progress IS NOT NULL THEN greatest(0, s.max_in_progress - coalesce(h.n, 0)) END
FROM source AS s
LEFT JOIN held AS h ON h.source_id = s.id
WHERE %(sources)s::integer[] IS NULL OR s.id = ANY (%(sources)s::integer[])
UNION ALL
SELECT 0, coalesce(sum(n), 0)::bigint,
    CASE WHEN %(most)s::bigint IS NOT NULL THEN greatest(0, %(most)s::bigint - coalesce(sum(n), 0)::bigint) END
FROM held

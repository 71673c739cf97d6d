-- The ignore rules and how much each hides.
SELECT
    r.id,
    r.kind,
    r.pattern,
    s.name AS source,
    r.target_id,
    r.reason,
    r.created_by,
    r.created_at,
    r.removed_by,
    r.removed_at,
    (SELECT count(*) FROM finding AS f WHERE f.ignored_rule = r.id) AS ignored_count
FROM ignore_rule AS r
LEFT JOIN source AS s ON r.source_id = s.id
WHERE r.removed_at IS NULL OR %(removed)s::boolean
ORDER BY r.id

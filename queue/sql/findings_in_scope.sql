-- Findings that a rule may hide or has hidden, a batch at a time: for a rule that has ended only what it hides.
WITH rule AS MATERIALIZED (
    SELECT r.*
    FROM ignore_rule AS r
    WHERE r.id = %(rule_id)s::bigint
)

SELECT f.id
FROM finding AS f
CROSS JOIN rule AS r
WHERE
    f.id > %(after_id)s::bigint
    AND (
        (r.removed_at IS NOT NULL AND f.ignored_rule = r.id)
        OR (
            r.removed_at IS NULL
            AND (r.identity IS NULL OR f.identity = r.identity)
            AND (r.target_id IS NULL OR f.target_id = r.target_id)
            AND (
                r.source_id IS NULL
                OR EXISTS (SELECT FROM target AS t WHERE t.id = f.target_id AND t.source_id = r.source_id)
            )
        )
    )
ORDER BY f.id
LIMIT %(limit)s::bigint

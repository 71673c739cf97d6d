-- A new ignore rule, or the living one that says the same.
WITH added AS (
    INSERT INTO ignore_rule (kind, pattern, regex, identity, source_id, target_id, reason, created_by, created_at)
    VALUES (
        %(kind)s::text,
        %(pattern)s::text,
        %(regex)s::text,
        %(identity)s::bytea,
        %(source_id)s::integer,
        %(target_id)s::bigint,
        %(reason)s::text,
        %(by)s::text,
        coalesce(%(now)s::timestamptz, clock_timestamp())
    )
    ON CONFLICT DO NOTHING
    RETURNING id
)

SELECT a.id
FROM added AS a
UNION ALL
SELECT r.id
FROM ignore_rule AS r
WHERE
    r.removed_at IS NULL
    AND (r.kind, r.pattern) = (%(kind)s::text, %(pattern)s::text)
    AND (r.source_id, r.target_id) IS NOT DISTINCT FROM (%(source_id)s::integer, %(target_id)s::bigint)
LIMIT 1

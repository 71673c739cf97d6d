-- Which findings the entries of a baseline mean: by identity anywhere, else by rule, path and line in named targets.
-- Rules are compared as identities take them: without case.
WITH entry AS MATERIALIZED (
    SELECT
        e.number,
        e.identity,
        lower(e.rule) AS rule,
        e.path,
        e.line
    FROM unnest(
        %(numbers)s::bigint[], %(identities)s::bytea[], %(rules)s::text[], %(paths)s::text[], %(lines)s::bigint[]
    ) AS e (number, identity, rule, path, line)
)

SELECT
    e.number,
    f.id
FROM entry AS e
INNER JOIN finding AS f ON e.identity = f.identity
WHERE %(target_ids)s::bigint[] IS NULL OR f.target_id = ANY(%(target_ids)s::bigint[])
UNION
SELECT
    e.number,
    f.id
FROM finding AS f
INNER JOIN finding_place AS p ON f.id = p.finding_id
INNER JOIN entry AS e ON lower(f.rule) = e.rule AND p.path = e.path AND p.line = e.line
WHERE e.identity IS NULL AND f.target_id = ANY(%(target_ids)s::bigint[])
ORDER BY 1, 2

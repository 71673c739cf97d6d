-- The code-owners files of some targets.
SELECT
    o.target_id,
    o.body
FROM target_code_owners AS o
WHERE o.target_id = ANY(%(target_ids)s::bigint[])

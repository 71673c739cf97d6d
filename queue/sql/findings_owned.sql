-- Which of some targets have a code-owners file at all: most have none, and their findings are many.
SELECT o.target_id
FROM target_code_owners AS o
WHERE o.target_id = ANY(%(target_ids)s::bigint[])

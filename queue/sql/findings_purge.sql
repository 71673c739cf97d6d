-- Remove everything that is known of the findings of targets that are themselves being removed.
WITH gone AS MATERIALIZED (
    SELECT f.id
    FROM finding AS f
    WHERE f.target_id = ANY(%(target_ids)s::bigint[])
    ORDER BY f.id
    FOR UPDATE
),

places AS (
    DELETE FROM finding_place AS p WHERE p.finding_id = ANY(ARRAY(SELECT g.id FROM gone AS g))
),

events AS (
    DELETE FROM finding_event AS e WHERE e.finding_id = ANY(ARRAY(SELECT g.id FROM gone AS g))
),

owners AS (
    DELETE FROM target_code_owners AS o WHERE o.target_id = ANY(%(target_ids)s::bigint[])
),

rules AS (
    DELETE FROM ignore_rule AS r WHERE r.target_id = ANY(%(target_ids)s::bigint[])
)

DELETE FROM finding AS f WHERE f.id = ANY(ARRAY(SELECT g.id FROM gone AS g))

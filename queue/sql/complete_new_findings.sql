-- What the stored findings turned out to be: those new to the target, into the history row and the yield of its moves.
-- Runs in the completing transaction, whose row locks it relies on, and only when something new was found.
WITH fresh AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(new)s::integer[]) AS u (id, token, n)
),
counted AS (
    UPDATE target_hot AS h SET yl_f = h.yl_f + f.n
    FROM fresh AS f
    WHERE h.id = ANY (%(ids)s::bigint[]) AND h.id = f.id
)
UPDATE target_history AS t SET new_findings = f.n
FROM fresh AS f
WHERE t.target_id = ANY (%(ids)s::bigint[]) AND t.target_id = f.id AND t.lease_token = f.token

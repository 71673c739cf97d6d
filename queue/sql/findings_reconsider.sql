-- Whether the ignore rules hit these findings: a rule by identity, or every place under a path rule or an inline mark
-- (one place that is not ignored keeps the finding visible). Writes only what changed, and says so in its life.
WITH wanted AS MATERIALIZED (
    SELECT
        f.id,
        f.target_id,
        f.identity,
        f.life,
        f.ignored_rule
    FROM finding AS f
    WHERE f.id = ANY(%(finding_ids)s::bigint[])
    ORDER BY f.id
    FOR NO KEY UPDATE
),

scoped AS MATERIALIZED (
    SELECT
        w.id,
        r.id AS rule_id,
        r.kind,
        r.regex,
        r.identity = w.identity AS same_identity,
        r.reason
    FROM wanted AS w
    INNER JOIN target AS t ON w.target_id = t.id
    INNER JOIN ignore_rule AS r
        ON
            r.removed_at IS NULL
            AND (r.source_id IS NULL OR r.source_id = t.source_id)
            AND (r.target_id IS NULL OR r.target_id = t.id)
),

by_identity AS (
    SELECT DISTINCT ON (s.id)
        s.id,
        s.rule_id,
        s.reason
    FROM scoped AS s
    WHERE s.kind = 'identity' AND s.same_identity
    ORDER BY s.id, s.rule_id
),

place AS (
    SELECT
        p.finding_id AS id,
        p.ignore_mark,
        hit.rule_id,
        hit.reason
    FROM finding_place AS p
    LEFT JOIN LATERAL (
        SELECT
            s.rule_id,
            s.reason
        FROM scoped AS s
        WHERE s.id = p.finding_id AND s.kind = 'path' AND p.path ~ s.regex
        ORDER BY s.rule_id
        LIMIT 1
    ) AS hit ON TRUE
    WHERE p.finding_id = ANY(ARRAY(SELECT w.id FROM wanted AS w))
),

by_place AS (
    SELECT
        p.id,
        min(p.rule_id) AS rule_id,
        (array_agg(p.reason ORDER BY p.rule_id) FILTER (WHERE p.rule_id IS NOT NULL))[1] AS reason,
        'inline mark: ' || min(p.ignore_mark) AS mark
    FROM place AS p
    GROUP BY p.id
    HAVING bool_and(p.rule_id IS NOT NULL OR p.ignore_mark IS NOT NULL)
),

verdict AS (
    SELECT
        w.id,
        coalesce(i.rule_id, b.rule_id) AS rule_id,
        coalesce(i.reason, b.reason, b.mark) AS why
    FROM wanted AS w
    LEFT JOIN by_identity AS i ON w.id = i.id
    LEFT JOIN by_place AS b ON w.id = b.id
    -- What is fixed has no places left to judge: it keeps its verdict for as long as the rule stands.
    WHERE
        w.life <> 'fixed'
        OR i.id IS NOT NULL
        OR EXISTS (SELECT FROM ignore_rule AS gone WHERE gone.id = w.ignored_rule AND gone.removed_at IS NOT NULL)
),

changed AS (
    UPDATE finding AS f
    SET ignored_rule = v.rule_id, ignored_why = v.why
    FROM verdict AS v
    WHERE f.id = v.id AND (f.ignored_rule, f.ignored_why) IS DISTINCT FROM (v.rule_id, v.why)
    RETURNING f.id, f.ignored_rule, f.ignored_why
),

noted AS (
    INSERT INTO finding_event (finding_id, at, kind, by, why)
    SELECT
        c.id,
        coalesce(%(now)s::timestamptz, now()),
        CASE WHEN c.ignored_why IS NULL THEN 'unignored' ELSE 'ignored' END,
        CASE WHEN c.ignored_rule IS NULL THEN 'inline mark' ELSE 'rule ' || c.ignored_rule END,
        coalesce(c.ignored_why, '')
    FROM changed AS c
    ORDER BY c.id
)

SELECT
    c.id,
    c.ignored_why IS NOT NULL AS ignored
FROM changed AS c
ORDER BY c.id

-- Findings of which a completion brings news: rows are locked in id order first (triage and ignore rules write the
-- same rows). last_seen_at moves only for what still stands.
WITH change AS (
    SELECT c.*
    FROM unnest(
        %(finding_ids)s::bigint[],
        %(rule_names)s::text[],
        %(severities)s::smallint[],
        %(confidences)s::text[],
        %(maskeds)s::text[],
        %(lives)s::text[],
        %(scanners)s::text[],
        %(seen_by)s::text[],
        %(place_counts)s::bigint[],
        %(head_counts)s::bigint[],
        %(unlisted_counts)s::bigint[],
        %(first_commits)s::text[]
    ) AS c (
        id, rule_name, severity, confidence, masked, life, scanners, seen_by,
        place_count, head_count, unlisted_count, first_commit
    )
),

locked AS MATERIALIZED (
    SELECT f.id
    FROM finding AS f
    WHERE f.id = ANY(%(finding_ids)s::bigint[])
    ORDER BY f.id
    FOR NO KEY UPDATE
)

UPDATE finding AS f
SET
    rule_name = c.rule_name,
    severity = c.severity,
    confidence = c.confidence,
    masked = c.masked,
    life = c.life,
    scanners = c.scanners::text[],
    seen_by = c.seen_by::text[],
    place_count = c.place_count,
    head_count = c.head_count,
    unlisted_count = c.unlisted_count,
    first_commit = c.first_commit,
    last_seen_at = CASE WHEN c.life = 'fixed' THEN f.last_seen_at ELSE coalesce(%(now)s::timestamptz, now()) END,
    fixed_at = CASE
        WHEN c.life = 'fixed' AND f.life <> 'fixed' THEN coalesce(%(now)s::timestamptz, now()) ELSE f.fixed_at
    END,
    reopened_at = CASE
        WHEN c.life = 'reopened' AND f.life = 'fixed' THEN coalesce(%(now)s::timestamptz, now()) ELSE f.reopened_at
    END
FROM change AS c
WHERE f.id = c.id AND f.id = ANY(ARRAY(SELECT l.id FROM locked AS l))

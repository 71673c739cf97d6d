-- New findings, in the order of their unique key.
INSERT INTO finding (
    target_id, identity, rule, rule_name, severity, confidence, masked, life, scanners, seen_by,
    place_count, head_count, unlisted_count, first_commit, first_seen_at, last_seen_at
)
SELECT
    n.target_id,
    n.identity,
    n.rule,
    n.rule_name,
    n.severity,
    n.confidence,
    n.masked,
    'open',
    n.seen_by::text[],
    n.seen_by::text[],
    n.place_count,
    n.head_count,
    n.unlisted_count,
    n.first_commit,
    coalesce(%(now)s::timestamptz, now()),
    coalesce(%(now)s::timestamptz, now())
FROM unnest(
    %(target_ids)s::bigint[],
    %(identities)s::bytea[],
    %(rules)s::text[],
    %(rule_names)s::text[],
    %(severities)s::smallint[],
    %(confidences)s::text[],
    %(maskeds)s::text[],
    %(seen_by)s::text[],
    %(place_counts)s::bigint[],
    %(head_counts)s::bigint[],
    %(unlisted_counts)s::bigint[],
    %(first_commits)s::text[]
) AS n (
    target_id, identity, rule, rule_name, severity, confidence, masked, seen_by,
    place_count, head_count, unlisted_count, first_commit
)
ORDER BY n.target_id, n.identity
RETURNING id, target_id, identity

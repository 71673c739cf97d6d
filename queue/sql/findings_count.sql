-- How many findings there are, by status and severity. The filter is that of findings_list.sql.
SELECT
    finding_status(f.life, f.triage, f.triage_until, f.ignored_why, coalesce(%(now)s::timestamptz, now())) AS status,
    f.severity,
    count(*) AS count
FROM finding AS f
INNER JOIN target AS t ON f.target_id = t.id
INNER JOIN source AS s ON t.source_id = s.id
WHERE
    (
        %(statuses)s::text[] IS NULL
        OR finding_status(f.life, f.triage, f.triage_until, f.ignored_why, coalesce(%(now)s::timestamptz, now()))
            = ANY(%(statuses)s::text[])
    )
    -- Redundant, and lets the planner take the index of standing findings.
    AND (%(standing)s::boolean IS NOT TRUE OR f.life <> 'fixed')
    AND (%(severities)s::smallint[] IS NULL OR f.severity = ANY(%(severities)s::smallint[]))
    AND (%(rules)s::text[] IS NULL OR f.rule = ANY(%(rules)s::text[]))
    AND (%(finding_ids)s::bigint[] IS NULL OR f.id = ANY(%(finding_ids)s::bigint[]))
    AND (%(identities)s::bytea[] IS NULL OR f.identity = ANY(%(identities)s::bytea[]))
    AND (%(target_ids)s::bigint[] IS NULL OR f.target_id = ANY(%(target_ids)s::bigint[]))
    AND (%(sources)s::text[] IS NULL OR s.name = ANY(%(sources)s::text[]))
    AND (
        %(targets)s::text[] IS NULL
        OR t.normalized_target = ANY(%(targets)s::text[])
        OR t.display_name = ANY(%(targets)s::text[])
    )
    AND (%(scanner)s::text IS NULL OR %(scanner)s::text = ANY(f.scanners))
    AND (%(in_head)s::boolean IS NULL OR (f.head_count > 0) = %(in_head)s::boolean)
    AND (
        %(since)s::timestamptz IS NULL
        OR greatest(f.first_seen_at, f.reopened_at, f.fixed_at) >= %(since)s::timestamptz
    )
    AND (
        %(path)s::text IS NULL
        OR EXISTS (SELECT FROM finding_place AS p WHERE p.finding_id = f.id AND p.path ~ %(path)s::text)
    )
GROUP BY 1, 2
ORDER BY 1, 2

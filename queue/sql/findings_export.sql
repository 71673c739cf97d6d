-- Findings for export, read through a server-side cursor: grouped by repository and in an order that does not depend
-- on ids or on the server's language. The filter is that of findings_list.sql.
SELECT
    f.id,
    f.target_id,
    s.name AS source,
    t.normalized_target AS target,
    t.display_name,
    t.address,
    f.identity,
    f.rule,
    f.rule_name,
    f.severity,
    f.confidence,
    f.masked,
    finding_status(f.life, f.triage, f.triage_until, f.ignored_why, coalesce(%(now)s::timestamptz, now())) AS status,
    f.life,
    f.scanners,
    f.seen_by,
    f.place_count,
    f.head_count,
    f.unlisted_count,
    f.first_commit,
    f.first_seen_at,
    f.last_seen_at,
    f.fixed_at,
    f.reopened_at,
    f.triage,
    f.triage_by,
    f.triage_why,
    f.triage_at,
    f.triage_until,
    f.ignored_why,
    f.ignored_rule,
    place.list
FROM finding AS f
INNER JOIN target AS t ON f.target_id = t.id
INNER JOIN source AS s ON t.source_id = s.id
LEFT JOIN LATERAL (
    SELECT
        jsonb_agg(
            jsonb_build_array(p.path, p.line, p.column_no, p.commit_id, p.blob_id, p.in_head, p.scanners)
            ORDER BY p.in_head DESC, p.path COLLATE "C", p.line, p.column_no, p.key
        ) AS list
    FROM (
        SELECT
            w.key,
            w.path,
            w.line,
            w.column_no,
            w.commit_id,
            w.blob_id,
            bool_or(w.in_head) AS in_head,
            array_agg(w.scanner ORDER BY w.scanner) AS scanners
        FROM finding_place AS w
        WHERE w.finding_id = f.id
        GROUP BY w.key, w.path, w.line, w.column_no, w.commit_id, w.blob_id
        ORDER BY in_head DESC, w.path COLLATE "C", w.line, w.column_no, w.key
        LIMIT %(places)s::bigint
    ) AS p
) AS place ON TRUE
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
ORDER BY s.name COLLATE "C", t.normalized_target COLLATE "C", f.target_id, f.rule COLLATE "C", f.identity

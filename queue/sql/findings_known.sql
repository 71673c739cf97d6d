-- The findings of targets whose scans are being completed: those that stand, and those that are reported and stored.
-- No row is locked: only completions write what is read here, and they hold the target's row; an unchanged rescan
-- therefore writes nothing at all. A person's triage lives in columns of its own and decides nothing below.
SELECT
    f.id,
    f.target_id,
    f.identity,
    f.rule,
    f.rule_name,
    f.severity,
    f.confidence,
    f.masked,
    f.life,
    f.scanners,
    f.seen_by,
    f.unlisted_count,
    f.first_commit,
    finding_status(f.life, f.triage, f.triage_until, NULL, coalesce(%(now)s::timestamptz, now()))
        IN ('accepted', 'false_positive') AS triaged,
    f.ignored_why IS NOT NULL AS ignored
FROM finding AS f
WHERE
    f.target_id = ANY(%(target_ids)s::bigint[])
    AND (
        f.life <> 'fixed'
        OR (f.target_id, f.identity) IN (
            SELECT r.target_id, r.identity
            FROM unnest(%(reported_target_ids)s::bigint[], %(reported_identities)s::bytea[]) AS r (target_id, identity)
        )
    )
ORDER BY f.id

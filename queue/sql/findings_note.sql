-- The life of findings: what a completion did to them.
INSERT INTO finding_event (finding_id, at, kind, by, lease_token)
SELECT
    e.finding_id,
    coalesce(%(now)s::timestamptz, now()),
    e.kind,
    e.by,
    e.lease_token
FROM unnest(
    %(finding_ids)s::bigint[], %(kinds)s::text[], %(by)s::text[], %(lease_tokens)s::bigint[]
) AS e (finding_id, kind, by, lease_token)
ORDER BY e.finding_id

-- What a finding's identity was made over, and where its repository is: to show its secret to somebody once.
SELECT
    s.kind,
    t.provider_id,
    t.normalized_target,
    t.address
FROM finding AS f
INNER JOIN target AS t ON f.target_id = t.id
INNER JOIN source AS s ON t.source_id = s.id
WHERE f.id = %(finding_id)s::bigint

-- Everything that happened to one finding, oldest first.
SELECT
    e.id,
    e.at,
    e.kind,
    e.by,
    e.why,
    e.until,
    e.lease_token
FROM finding_event AS e
WHERE e.finding_id = %(finding_id)s::bigint
ORDER BY e.id

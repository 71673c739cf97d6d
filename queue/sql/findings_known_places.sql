-- The places of findings that a completion shows or may close: the key of each and whether it is in the head.
SELECT
    p.finding_id,
    p.scanner,
    p.key,
    p.in_head
FROM finding_place AS p
WHERE p.finding_id = ANY(%(finding_ids)s::bigint[])

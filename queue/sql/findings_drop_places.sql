-- Places that a complete scan no longer shows.
DELETE FROM finding_place AS p
USING unnest(%(finding_ids)s::bigint[], %(scanners)s::text[], %(keys)s::uuid[]) AS d (finding_id, scanner, key)
WHERE p.finding_id = d.finding_id AND p.scanner = d.scanner AND p.key = d.key

-- What each scanner has covered of these targets: one lookup by key a target, whatever the planner knows of the table.
SELECT c.target_id, c.scanner, c.revision, c.fingerprint, c.tips, c.scanned_at
FROM unnest(%(ids)s::bigint[]) AS wanted (id)
CROSS JOIN LATERAL (SELECT q.* FROM scanner_coverage AS q WHERE q.target_id = wanted.id OFFSET 0) AS c
ORDER BY c.target_id, c.scanner

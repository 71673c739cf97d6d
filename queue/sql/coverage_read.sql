-- What each scanner has covered of these targets.
SELECT c.target_id, c.scanner, c.revision, c.fingerprint, c.tips, c.scanned_at
FROM scanner_coverage AS c
WHERE c.target_id = ANY (%(ids)s::bigint[])
ORDER BY c.target_id, c.scanner

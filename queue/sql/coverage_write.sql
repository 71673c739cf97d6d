-- Store what succeeded, per (target, scanner), for the claims that were accepted. Sorted by the key: the order every inserter keeps.
INSERT INTO scanner_coverage (target_id, source_id, scanner, revision, fingerprint, tips, scanned_at)
SELECT u.target_id, h.source_id, u.scanner, u.revision, u.fingerprint,
    ARRAY (SELECT decode(tip, 'hex') FROM unnest(string_to_array(nullif(u.tips, ''), ' ')) AS tip), coalesce(%(now)s::timestamptz, now())
FROM unnest(%(ids)s::bigint[], %(scanners)s::text[], %(revisions)s::bytea[], %(fingerprints)s::bytea[], %(tips)s::text[])
    AS u (target_id, scanner, revision, fingerprint, tips)
CROSS JOIN LATERAL (SELECT q.source_id FROM target_hot AS q WHERE q.id = u.target_id OFFSET 0) AS h
ORDER BY u.target_id, u.scanner
ON CONFLICT (target_id, scanner) DO UPDATE
SET revision = excluded.revision, fingerprint = excluded.fingerprint, tips = excluded.tips, scanned_at = excluded.scanned_at

-- Work owed after an upgrade: finished targets whose coverage carries another fingerprint, found by the two ranges beside it.
-- Class reconcile, under a cap of its own. Rows locked elsewhere are passed over.
WITH owing AS MATERIALIZED (
    SELECT o.id
    FROM (
        (SELECT c.target_id AS id FROM scanner_coverage AS c
            WHERE c.source_id = %(source_id)s AND c.scanner = %(scanner)s AND c.fingerprint < %(fingerprint)s
                AND EXISTS (SELECT FROM target_hot AS q WHERE q.id = c.target_id AND q.state = 'done' AND q.reserved_by IS NULL)
            LIMIT %(limit)s)
        UNION ALL
        (SELECT c.target_id FROM scanner_coverage AS c
            WHERE c.source_id = %(source_id)s AND c.scanner = %(scanner)s AND c.fingerprint > %(fingerprint)s
                AND EXISTS (SELECT FROM target_hot AS q WHERE q.id = c.target_id AND q.state = 'done' AND q.reserved_by IS NULL)
            LIMIT %(limit)s)
    ) AS o
    LIMIT %(limit)s
),
picked AS MATERIALIZED (
    SELECT h.id FROM target_hot AS h
    WHERE h.id = ANY (ARRAY (SELECT id FROM owing)) AND h.state = 'done' AND h.reserved_by IS NULL
    ORDER BY h.id
    FOR UPDATE SKIP LOCKED
)
UPDATE target_hot AS h
SET state = 'pending', admission = 'reconcile', attempts = 0, deferrals = 0, not_before = coalesce(%(now)s::timestamptz, now())
WHERE h.id = ANY (ARRAY (SELECT id FROM picked))

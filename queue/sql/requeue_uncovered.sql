-- Work owed by a scanner that never covered a finished target.
-- Class reconcile, under a cap of its own. Rows locked elsewhere are passed over.
WITH owing AS MATERIALIZED (
    SELECT q.id
    FROM target_hot AS q
    WHERE q.source_id = %(source_id)s AND q.state = 'done' AND q.reserved_by IS NULL
        AND NOT EXISTS (SELECT FROM scanner_coverage AS c WHERE c.target_id = q.id AND c.scanner = %(scanner)s)
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

-- Triages whose time is over: said in the life of their findings, which are open already.
WITH wanted AS MATERIALIZED (
    SELECT f.id
    FROM finding AS f
    WHERE f.triage IS NOT NULL AND f.triage_until <= coalesce(%(now)s::timestamptz, now())
    ORDER BY f.id
    LIMIT %(limit)s::bigint
    FOR NO KEY UPDATE SKIP LOCKED
),

changed AS (
    UPDATE finding AS f
    SET triage = NULL, triage_by = NULL, triage_why = NULL, triage_at = NULL, triage_until = NULL
    WHERE f.id = ANY(ARRAY(SELECT w.id FROM wanted AS w))
    RETURNING f.id
)

INSERT INTO finding_event (finding_id, at, kind, by, why)
SELECT
    c.id,
    coalesce(%(now)s::timestamptz, now()),
    'triage_cleared',
    'resweep',
    'its time was over'
FROM changed AS c
ORDER BY c.id

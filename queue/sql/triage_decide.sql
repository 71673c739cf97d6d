-- A person's decision on findings, with its line in the life of each. What already stands as decided is not written.
WITH wanted AS MATERIALIZED (
    SELECT f.id
    FROM finding AS f
    WHERE f.id = ANY(%(finding_ids)s::bigint[])
    ORDER BY f.id
    FOR NO KEY UPDATE
),

changed AS (
    UPDATE finding AS f
    SET
        triage = %(verdict)s::text,
        triage_by = CASE WHEN %(verdict)s::text IS NOT NULL THEN %(by)s::text END,
        triage_why = CASE WHEN %(verdict)s::text IS NOT NULL THEN %(why)s::text END,
        triage_at = CASE WHEN %(verdict)s::text IS NOT NULL THEN coalesce(%(now)s::timestamptz, clock_timestamp()) END,
        triage_until = %(until)s::timestamptz
    WHERE
        f.id = ANY(ARRAY(SELECT w.id FROM wanted AS w))
        AND (
            (f.triage, f.triage_until) IS DISTINCT FROM (%(verdict)s::text, %(until)s::timestamptz)
            OR (f.triage IS NOT NULL AND (f.triage_by, f.triage_why) IS DISTINCT FROM (%(by)s::text, %(why)s::text))
        )
    RETURNING f.id
),

noted AS (
    INSERT INTO finding_event (finding_id, at, kind, by, why, until)
    SELECT
        c.id,
        coalesce(%(now)s::timestamptz, clock_timestamp()),
        coalesce(%(verdict)s::text, 'triage_cleared'),
        %(by)s::text,
        %(why)s::text,
        %(until)s::timestamptz
    FROM changed AS c
    ORDER BY c.id
)

SELECT c.id
FROM changed AS c
ORDER BY c.id

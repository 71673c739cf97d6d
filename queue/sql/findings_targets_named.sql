-- The targets that people name: by identity text or by the name that is shown.
SELECT
    t.id,
    t.normalized_target,
    t.display_name
FROM target AS t
INNER JOIN source AS s ON t.source_id = s.id
WHERE
    (t.normalized_target = ANY(%(names)s::text[]) OR t.display_name = ANY(%(names)s::text[]))
    AND (%(sources)s::text[] IS NULL OR s.name = ANY(%(sources)s::text[]))
ORDER BY t.id

-- How many targets a filter matches: shown before a bulk act.
SELECT count(*)
FROM target_queue AS q
WHERE (%(states)s::text[] IS NULL OR q.state = ANY (%(states)s::text[]::target_state[]))
    AND (%(sources)s::integer[] IS NULL OR q.source_id = ANY (%(sources)s::integer[]))
    AND (%(error_code)s::text IS NULL OR q.last_error_code = %(error_code)s::text)
    AND (%(name)s::text IS NULL OR strpos(q.normalized_target, %(name)s::text) > 0 OR strpos(q.display_name, %(name)s::text) > 0)
    AND (%(admission)s::text IS NULL OR q.admission = %(admission)s::text::admission_class)
    AND (%(changed)s::boolean IS NULL OR q.changed = %(changed)s::boolean)
    AND (%(older_than)s::interval IS NULL OR CASE WHEN q.state = 'done' THEN q.completed_at ELSE q.not_before END
        <= coalesce(%(now)s::timestamptz, now()) - %(older_than)s::interval)

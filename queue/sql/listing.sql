-- Targets by filter, by id, a page at a time (keyset).
SELECT q.id, q.source, q.kind, q.normalized_target, q.display_name, q.state::text, q.priority, q.admission::text, q.not_before, q.attempts,
    q.deferrals, q.lease_owner, q.lease_token, q.lease_expires_at, q.remote_modified_at, q.scan_remote_modified_at, q.scan_started_at,
    q.completed_at, q.requested_at, q.request_no > q.scan_request_no, q.changed, q.changed_at, q.reserved_by, q.reserved_until,
    q.deferred_reason, q.retire_reason, q.unresolved_reason, q.last_error_code, q.last_error, q.last_error_at, q.recheck_at, q.address,
    q.provider_id, q.attributes, q.former_names, q.discovered_at, q.source_id
FROM target_queue AS q
WHERE q.id > %(after)s
    AND (%(states)s::text[] IS NULL OR q.state = ANY (%(states)s::text[]::target_state[]))
    AND (%(sources)s::integer[] IS NULL OR q.source_id = ANY (%(sources)s::integer[]))
    AND (%(error_code)s::text IS NULL OR q.last_error_code = %(error_code)s::text)
    AND (%(name)s::text IS NULL OR strpos(q.normalized_target, %(name)s::text) > 0 OR strpos(q.display_name, %(name)s::text) > 0)
    AND (%(admission)s::text IS NULL OR q.admission = %(admission)s::text::admission_class)
    AND (%(changed)s::boolean IS NULL OR q.changed = %(changed)s::boolean)
    AND (%(older_than)s::interval IS NULL OR CASE WHEN q.state = 'done' THEN q.completed_at ELSE q.not_before END
        <= coalesce(%(now)s::timestamptz, now()) - %(older_than)s::interval)
ORDER BY q.id
LIMIT %(limit)s

-- Targets of this very name, the current name before former ones.
SELECT q.id, q.source, q.kind, q.normalized_target, q.display_name, q.state::text, q.priority, q.admission::text, q.not_before, q.attempts,
    q.deferrals, q.lease_owner, q.lease_token, q.lease_expires_at, q.remote_modified_at, q.scan_remote_modified_at, q.scan_started_at,
    q.completed_at, q.requested_at, q.request_no > q.scan_request_no, q.changed, q.changed_at, q.reserved_by, q.reserved_until,
    q.deferred_reason, q.retire_reason, q.unresolved_reason, q.last_error_code, q.last_error, q.last_error_at, q.recheck_at, q.address,
    q.provider_id, q.attributes, q.former_names, q.discovered_at, q.source_id
FROM target_queue AS q
WHERE (%(source_id)s::integer IS NULL OR q.source_id = %(source_id)s::integer)
    AND (q.normalized_target IN (%(name)s::text, lower(%(name)s::text)) OR q.display_name = %(name)s::text OR q.address = %(name)s::text
        OR %(name)s::text = ANY (q.former_names))
ORDER BY q.normalized_target = %(name)s::text DESC, %(name)s::text = ANY (q.former_names), q.id
LIMIT 100

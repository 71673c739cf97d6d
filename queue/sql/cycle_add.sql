-- Add a step's counts to the running cycle.
UPDATE source_cycles
SET pages = pages + %(pages)s, requests = requests + %(requests)s, not_modified = not_modified + %(not_modified)s,
    fetched_count = fetched_count + %(fetched)s, known_count = known_count + %(known)s,
    queued_new_count = queued_new_count + %(queued_new)s, queued_updated_count = queued_updated_count + %(queued_updated)s,
    queued_reconcile_count = queued_reconcile_count + %(queued_reconcile)s,
    missing_timestamp_count = missing_timestamp_count + %(missing)s, invalid_timestamp_count = invalid_timestamp_count + %(invalid)s,
    older_timestamp_count = older_timestamp_count + %(older)s, moved_count = moved_count + %(moved)s,
    renamed_count = renamed_count + %(renamed)s, retired_count = retired_count + %(retired)s
WHERE id = %(id)s AND status = 'running'

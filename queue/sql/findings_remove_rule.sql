-- End an ignore rule: it stays as a fact.
UPDATE ignore_rule
SET removed_by = %(by)s::text, removed_at = coalesce(%(now)s::timestamptz, clock_timestamp())
WHERE id = %(rule_id)s::bigint AND removed_at IS NULL

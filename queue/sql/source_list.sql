-- Every source with its pause and its faults.
SELECT id, name, kind, scope, tenant, ad_hoc, max_in_progress,
    pause_reason IS NOT NULL AND (paused_until IS NULL OR paused_until > coalesce(%(now)s::timestamptz, now())),
    paused_until, pause_reason, paused_by, fault_streak, last_fault_code, last_fault, policy
FROM source ORDER BY name

-- Wait for every completion that stores findings by the rules as they were; see findings_hold_rules.sql.
SELECT pg_advisory_xact_lock(%(space)s::integer, 0)

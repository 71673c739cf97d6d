-- Open a cycle's row.
INSERT INTO source_cycles (source_id, trigger, target_id, started_at, settings_fingerprint)
VALUES (%(source_id)s, %(trigger)s, %(target_id)s, coalesce(%(now)s::timestamptz, now()), %(fingerprint)s)
RETURNING id

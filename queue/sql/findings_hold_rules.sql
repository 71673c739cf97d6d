-- Keep the ignore rules as they are until this transaction ends: a rule that is added meanwhile waits, and is then
-- applied to what was stored here. Its own statement, so that the next one sees every rule that came before.
SELECT pg_advisory_xact_lock_shared(%(space)s::integer, 0)

-- Try to lead the passes: a session lock, held until this connection ends.
SELECT pg_try_advisory_lock(%(namespace)s, %(key)s)

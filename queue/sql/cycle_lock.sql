-- Try to take the session lock of a source's cycles; on the cycle's dedicated connection.
SELECT pg_try_advisory_lock(%(namespace)s::integer, %(id)s::integer)

-- Give the session lock of a source's cycles back; false when this session did not hold it.
SELECT pg_advisory_unlock(%(namespace)s::integer, %(id)s::integer)

-- The locks of max_in_progress, taken in a statement of their own: only the next statement's snapshot sees what earlier
-- holders took (queue.md: any form inside one statement breaks the limit). 0 is the global lock and comes first.
SELECT pg_advisory_xact_lock(%(namespace)s::integer, wanted.id)
FROM (SELECT id FROM unnest(%(ids)s::integer[]) AS u (id) ORDER BY id) AS wanted

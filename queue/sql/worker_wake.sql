-- This worker no longer sleeps.
UPDATE worker SET sleeping_until = NULL WHERE uuid = %(uuid)s AND sleeping_until IS NOT NULL

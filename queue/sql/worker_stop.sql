-- A worker process says that it ended in order; its leases were released before.
UPDATE worker SET stopped_at = coalesce(%(now)s::timestamptz, now()), sleeping_until = NULL WHERE uuid = %(uuid)s

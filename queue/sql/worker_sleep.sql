-- This worker goes to sleep.
UPDATE worker SET sleeping_until = coalesce(%(now)s::timestamptz, clock_timestamp()) + %(longest)s::interval,
    last_seen_at = coalesce(%(now)s::timestamptz, clock_timestamp())
WHERE uuid = %(uuid)s

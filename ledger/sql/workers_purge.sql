-- Forget worker processes that were not seen for long and hold nothing.
DELETE FROM worker AS w
WHERE w.last_seen_at < coalesce(%(now)s::timestamptz, now()) - %(older_than)s::interval
    AND NOT EXISTS (SELECT FROM target_hot AS h WHERE h.lease_owner = w.uuid AND h.state = 'in_progress')

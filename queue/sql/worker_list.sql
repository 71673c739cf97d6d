-- Worker processes seen lately, with the leases they hold.
SELECT to_jsonb(w) || jsonb_build_object('leases', coalesce(l.n, 0))
FROM worker AS w
LEFT JOIN (SELECT lease_owner, count(*) AS n FROM target_hot WHERE state = 'in_progress' GROUP BY lease_owner) AS l ON l.lease_owner = w.uuid
WHERE w.last_seen_at >= coalesce(%(now)s::timestamptz, now()) - %(within)s::interval OR l.n > 0
ORDER BY w.started_at

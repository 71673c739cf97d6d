-- Open a pass's row.
INSERT INTO runs (kind, tenant, trigger, scope, started_at)
VALUES (%(kind)s, %(tenant)s, %(trigger)s, %(scope)s, coalesce(%(now)s::timestamptz, now()))
RETURNING id

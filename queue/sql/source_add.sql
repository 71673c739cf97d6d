-- Add a source; another process may be doing the same.
INSERT INTO source (name, kind, scope, tenant, ad_hoc, max_in_progress, policy)
VALUES (%(name)s, %(kind)s, %(scope)s, %(tenant)s, %(ad_hoc)s, %(max_in_progress)s, %(policy)s)
ON CONFLICT (name) DO NOTHING
RETURNING id

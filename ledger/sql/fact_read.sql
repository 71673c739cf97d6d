-- One fact of this deployment.
SELECT value, written_at, written_by FROM deployment_fact WHERE name = %(name)s

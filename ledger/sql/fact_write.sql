-- The first writer decides a fact; whoever comes later reads what it was (fact_read).
INSERT INTO deployment_fact (name, value, written_by) VALUES (%(name)s, %(value)s, %(by)s) ON CONFLICT (name) DO NOTHING

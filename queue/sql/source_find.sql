-- Is the source known, of which kind, and are its settings those that are asked for? A read first: registering writes nothing twice.
SELECT id, kind,
    (scope, tenant, ad_hoc) = (%(scope)s::text, %(tenant)s::text, %(ad_hoc)s::boolean)
        AND max_in_progress IS NOT DISTINCT FROM %(max_in_progress)s::integer AND policy = %(policy)s::text,
    policy = %(policy)s::text
FROM source WHERE name = %(name)s::text

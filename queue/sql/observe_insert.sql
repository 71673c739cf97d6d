-- Admit new targets, first half: the identity, sorted by the unique key (the order every inserter keeps). Another process may have
-- inserted one just now: it is left out of the answer and compared again.
INSERT INTO target (source_id, normalized_target, display_name, address, provider_id, attributes, discovered_at)
SELECT %(source_id)s, p.name, p.display_name, p.address, nullif(p.provider_id, ''), p.attributes, coalesce(%(now)s::timestamptz, now())
FROM unnest(%(names)s::text[], %(provider_ids)s::text[], %(display_names)s::text[], %(addresses)s::text[], %(attributes)s::jsonb[])
    AS p (name, provider_id, display_name, address, attributes)
ORDER BY p.name
ON CONFLICT DO NOTHING
RETURNING id, normalized_target

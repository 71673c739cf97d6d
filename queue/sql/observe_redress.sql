-- Bring a known target's cold columns up to date (shown name, address, attributes, an id learnt late) and take away the marks of
-- absence: it was seen. Relies on lock_targets.
UPDATE target AS t
SET display_name = u.display_name, address = u.address, attributes = u.attributes,
    provider_id = coalesce(t.provider_id, nullif(u.provider_id, '')), absent_since = NULL, gone_first_at = NULL,
    retired_at = CASE WHEN %(admit)s THEN NULL ELSE t.retired_at END
FROM unnest(%(ids)s::bigint[], %(display_names)s::text[], %(addresses)s::text[], %(attributes)s::jsonb[], %(provider_ids)s::text[])
    AS u (id, display_name, address, attributes, provider_id)
WHERE t.id = u.id

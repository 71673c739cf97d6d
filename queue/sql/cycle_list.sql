-- Discovery cycles, the newest first.
SELECT to_jsonb(c) - 'settings_fingerprint' || jsonb_build_object('source', s.name)
FROM source_cycles AS c JOIN source AS s ON s.id = c.source_id
WHERE (%(source_id)s::integer IS NULL OR c.source_id = %(source_id)s::integer) AND (%(before)s::bigint IS NULL OR c.id < %(before)s::bigint)
ORDER BY c.id DESC
LIMIT %(limit)s

-- The registry walk's next targets: least recently refreshed first.
SELECT t.id, t.normalized_target, t.provider_id, t.address, h.observed_revision
FROM target AS t JOIN target_hot AS h ON h.id = t.id
WHERE t.source_id = %(source_id)s AND h.state NOT IN ('retired', 'unresolved')
ORDER BY t.last_refreshed_at NULLS FIRST, t.id
LIMIT %(limit)s

-- Findings by the beginning of their identity, as people copy it from a list.
SELECT f.id
FROM finding AS f
WHERE encode(f.identity, 'hex') LIKE %(prefix)s::text || '%%'
ORDER BY f.id
LIMIT 10

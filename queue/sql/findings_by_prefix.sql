-- Findings by the beginning of their identity, as people copy it from a list.
SELECT f.id
FROM finding AS f
WHERE starts_with(encode(f.identity, 'hex'), %(prefix)s::text)
ORDER BY f.id
LIMIT 10

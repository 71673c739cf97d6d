-- The id of a source by its name.
SELECT s.id
FROM source AS s
WHERE s.name = %(name)s::text

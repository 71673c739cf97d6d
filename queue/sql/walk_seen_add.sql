-- Remember what this page showed; after its writes, so that new and renamed targets are found too.
INSERT INTO walk_seen (id)
SELECT t.id
FROM unnest(%(names)s::text[]) AS u (name)
CROSS JOIN LATERAL (
    SELECT c.id FROM target AS c WHERE c.source_id = %(source_id)s AND c.normalized_target = u.name OFFSET 0
) AS t
ON CONFLICT DO NOTHING

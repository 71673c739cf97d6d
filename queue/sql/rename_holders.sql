-- Wanted names that a row outside this batch holds.
SELECT normalized_target FROM target
WHERE source_id = %(source_id)s AND normalized_target = ANY (%(names)s::text[]) AND NOT id = ANY (%(ids)s::bigint[])

-- What the affected rows are called now, read under their locks.
SELECT id, normalized_target, provider_id FROM target WHERE id = ANY (%(ids)s::bigint[]) ORDER BY id

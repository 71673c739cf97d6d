-- Remove acts that are older than what is kept, a bounded number at once.
DELETE FROM audit WHERE id = ANY (ARRAY (
    SELECT id FROM audit WHERE at < coalesce(%(now)s::timestamptz, now()) - %(older_than)s::interval ORDER BY id LIMIT %(limit)s
))

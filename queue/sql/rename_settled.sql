-- Which of these were unresolved only because their name was taken: a new name settles them.
SELECT id FROM target WHERE id = ANY (%(ids)s::bigint[]) AND unresolved_reason = 'name_taken'

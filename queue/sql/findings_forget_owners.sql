-- The default branch of a target has no code-owners file any more.
DELETE FROM target_code_owners WHERE target_id = %(target_id)s

-- Bring a source's settings up to date. Its kind stays for life.
UPDATE source
SET scope = %(scope)s, tenant = %(tenant)s, ad_hoc = %(ad_hoc)s, max_in_progress = %(max_in_progress)s, policy = %(policy)s
WHERE id = %(id)s

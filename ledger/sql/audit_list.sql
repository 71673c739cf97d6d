-- Acts, the newest first, a page at a time.
SELECT id, at, who, act, object, changed, detail FROM audit
WHERE %(before)s::bigint IS NULL OR id < %(before)s::bigint
ORDER BY id DESC
LIMIT %(limit)s

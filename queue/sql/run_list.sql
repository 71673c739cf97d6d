-- Other passes, the newest first.
SELECT to_jsonb(r) FROM runs AS r
WHERE (%(kind)s::text IS NULL OR r.kind = %(kind)s::text) AND (%(before)s::bigint IS NULL OR r.id < %(before)s::bigint)
ORDER BY r.id DESC
LIMIT %(limit)s

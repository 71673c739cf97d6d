-- The code-owners file of a target; the same text again writes nothing.
INSERT INTO target_code_owners AS o (target_id, path, body, stored_at)
SELECT
    n.target_id,
    n.path,
    n.body,
    coalesce(%(now)s::timestamptz, now())
FROM (SELECT %(target_id)s::bigint AS target_id, %(path)s::text AS path, %(body)s::text AS body) AS n
WHERE NOT EXISTS (
    SELECT FROM target_code_owners AS k WHERE (k.target_id, k.path, k.body) = (n.target_id, n.path, n.body)
)
ON CONFLICT (target_id) DO UPDATE
    SET path = excluded.path, body = excluded.body, stored_at = excluded.stored_at

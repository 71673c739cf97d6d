-- A target's ended claims, the newest first.
SELECT target_id, lease_token, worker, claimed_at, finished_at, outcome::text, admission::text, result, findings, new_findings, attempts,
    error_code, error
FROM target_history
WHERE target_id = %(id)s AND (%(before)s::bigint IS NULL OR lease_token < %(before)s::bigint)
ORDER BY lease_token DESC
LIMIT %(limit)s

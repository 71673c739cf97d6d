-- A target whose identity is not settled (a redirect, an ambiguous answer) is held for the resolver; a lease on it ends here.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
meant AS MATERIALIZED (
    SELECT h.* FROM target_hot AS h
    WHERE h.id = ANY (%(ids)s::bigint[]) AND h.state NOT IN ('unresolved', 'retired') ORDER BY h.id FOR UPDATE
),
said AS (
    UPDATE target AS t SET unresolved_reason = %(reason)s WHERE t.id = ANY (ARRAY (SELECT id FROM meant))
),
kept AS (
    INSERT INTO target_history (
        target_id, lease_token, claimed_at, finished_at, worker, source_id, outcome, admission, attempts, error_code
    )
    SELECT m.id, m.lease_token, m.scan_started_at, moment.at, m.lease_owner, m.source_id, 'unresolved', m.admission, m.attempts, %(reason)s
    FROM meant AS m, moment WHERE m.state = 'in_progress'
)
UPDATE target_hot AS h
SET state = 'unresolved', lease_owner = NULL, lease_expires_at = NULL, deferred_reason = NULL, retire_reason = NULL
WHERE h.id = ANY (ARRAY (SELECT id FROM meant)) AND h.state NOT IN ('unresolved', 'retired')
RETURNING h.id

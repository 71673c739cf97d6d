-- Checks due after a provider's blind window.
SELECT h.id, t.normalized_target, t.provider_id, t.address, h.observed_revision
FROM target_hot AS h JOIN target AS t ON t.id = h.id
WHERE h.source_id = %(source_id)s AND h.recheck_at <= coalesce(%(now)s::timestamptz, now()) AND h.state = 'done'
ORDER BY h.recheck_at, h.id
LIMIT %(limit)s
FOR UPDATE OF h SKIP LOCKED

-- The leases held now, the longest running first.
SELECT h.id, s.name, t.normalized_target, h.lease_owner, w.host, w.pid, h.lease_token, h.scan_started_at, h.lease_expires_at, h.attempts,
    h.admission::text
FROM target_hot AS h
JOIN target AS t ON t.id = h.id
JOIN source AS s ON s.id = h.source_id
LEFT JOIN worker AS w ON w.uuid = h.lease_owner
WHERE h.state = 'in_progress'
ORDER BY h.scan_started_at, h.id
LIMIT %(limit)s

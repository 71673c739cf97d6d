-- Whom a complete listing did not show: true = for the second time, and neither seen (a sighting clears absent_since) nor written
-- since the first one began.
SELECT h.id, coalesce(
    t.absent_since < %(began_at)s AND t.discovered_at < t.absent_since AND coalesce(h.completed_at, '-infinity') < t.absent_since
    AND coalesce(h.requested_at, '-infinity') < t.absent_since, false
)
FROM target_hot AS h
JOIN target AS t ON t.id = h.id
WHERE h.source_id = %(source_id)s AND h.state <> 'retired' AND h.retire_reason IS NULL AND t.discovered_at < %(began_at)s
    AND NOT EXISTS (SELECT FROM walk_seen AS w WHERE w.id = h.id)
ORDER BY h.id

-- Targets retired so long ago that they are to be forgotten, locked in id order; a bounded number at once.
SELECT h.id
FROM target_hot AS h
JOIN target AS t ON t.id = h.id
WHERE h.state = 'retired' AND t.retired_at < coalesce(%(now)s::timestamptz, now()) - %(older_than)s::interval
ORDER BY h.id
LIMIT %(limit)s
FOR UPDATE OF h

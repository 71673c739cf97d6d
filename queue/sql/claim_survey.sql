-- What a claim must know beforehand and may know a few seconds late: which sources there are, who of them has a limit, and
-- how many leases each holds (the quota's "fewest leased first"). Counted through target_leased alone.
SELECT s.id, s.max_in_progress, count(h.source_id)
FROM source AS s
LEFT JOIN target_hot AS h ON h.source_id = s.id AND h.state = 'in_progress'
WHERE %(sources)s::integer[] IS NULL OR s.id = ANY (%(sources)s::integer[])
GROUP BY s.id, s.max_in_progress
ORDER BY s.id

-- One more fault in a row; from the threshold on the source is paused. A person's pause stays as it is.
UPDATE source AS s
SET fault_streak = least(s.fault_streak, 1000000) + 1, last_fault_code = %(code)s, last_fault = %(message)s, last_fault_at = m.at,
    pause_reason = CASE WHEN m.pausing THEN %(code)s::text ELSE s.pause_reason END,
    paused_by = CASE WHEN m.pausing THEN 'faults' ELSE s.paused_by END,
    paused_until = CASE WHEN m.pausing THEN greatest(s.paused_until, m.at + m.wait * interval '1 second') ELSE s.paused_until END
FROM (
    SELECT q.id, coalesce(%(now)s::timestamptz, clock_timestamp()) AS at,
        q.fault_streak + 1 >= %(threshold)s AND (q.paused_by IS NULL OR q.paused_by = 'faults') AS pausing,
        (%(waits)s::double precision[])[least(cardinality(%(waits)s::double precision[]), greatest(1, q.fault_streak + 2 - %(threshold)s))] AS wait
    FROM source AS q WHERE q.id = %(id)s
    FOR UPDATE
) AS m
WHERE s.id = m.id
RETURNING s.fault_streak, CASE WHEN s.paused_by = 'faults' THEN s.paused_until END

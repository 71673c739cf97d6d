-- Sources paused by faults whose pause is over.
SELECT id FROM source WHERE paused_by = 'faults' AND paused_until <= coalesce(%(now)s::timestamptz, now()) ORDER BY id

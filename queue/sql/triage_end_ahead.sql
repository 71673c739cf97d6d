-- Whether the end of a triage lies ahead, by the only clock that counts.
SELECT %(until)s::timestamptz > coalesce(%(now)s::timestamptz, now()) AS ahead

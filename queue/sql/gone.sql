-- A per-id "gone": the second one, long enough after the first and with nothing completed between, says true.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
meant AS MATERIALIZED (
    SELECT h.id, h.completed_at FROM target_hot AS h
    WHERE h.id = ANY (%(ids)s::bigint[]) AND h.state <> 'retired' ORDER BY h.id FOR UPDATE
),
judged AS MATERIALIZED (
    SELECT m.id, t.gone_first_at IS NULL OR t.gone_first_at < m.completed_at IS TRUE AS first,
        t.gone_first_at <= moment.at - %(apart)s::interval AND coalesce(m.completed_at, '-infinity') <= t.gone_first_at AS second
    FROM meant AS m JOIN target AS t ON t.id = m.id CROSS JOIN moment
),
marked AS (
    UPDATE target AS t SET gone_first_at = moment.at
    FROM judged AS j, moment WHERE t.id = ANY (%(ids)s::bigint[]) AND t.id = j.id AND j.first
)
SELECT id, coalesce(second, false) FROM judged ORDER BY id

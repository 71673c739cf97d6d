-- Take leases: the one statement that hands a target to a worker (queue.md, "Claiming").
--
-- Lanes are (source, rank); each is one index range of target_ready, walked from its low-water mark and stopped as soon as
-- the source's quota is full, so the cost knows nothing of finished, waiting or further rows. The nested loops keep the
-- order of the VALUES list: no sort may stand between a lane and its row locks, or rows beyond the quota would be locked.
-- MATERIALIZED and = ANY (ARRAY (…)): any join to `picked` can be planned so that it runs twice, or over the whole table.
-- A source paused by its faults whose time has come gives one target as a probe and is put off again by half a minute.
WITH moment AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, now()) AS at, coalesce(%(now)s::timestamptz, clock_timestamp()) AS wall
),
asked AS MATERIALIZED (
    SELECT
        s.id, s.paused_by IS NOT DISTINCT FROM 'faults' AS probing, coalesce(k.leased, 0) AS leased, k.room,
        coalesce(k.m0, '-infinity') AS m0, coalesce(k.m1, '-infinity') AS m1, coalesce(k.m2, '-infinity') AS m2,
        coalesce(k.m3, '-infinity') AS m3, coalesce(k.m4, '-infinity') AS m4, coalesce(k.m5, '-infinity') AS m5
    FROM source AS s
    CROSS JOIN moment
    LEFT JOIN unnest(
        %(source)s::integer[], %(leased)s::bigint[], %(room)s::bigint[],
        %(m0)s::timestamptz[], %(m1)s::timestamptz[], %(m2)s::timestamptz[],
        %(m3)s::timestamptz[], %(m4)s::timestamptz[], %(m5)s::timestamptz[]
    ) AS k (id, leased, room, m0, m1, m2, m3, m4, m5) ON k.id = s.id
    WHERE (%(sources)s::integer[] IS NULL OR s.id = ANY (%(sources)s::integer[]))
        AND (s.pause_reason IS NULL OR s.paused_until <= moment.at)
        AND (s.max_in_progress IS NULL OR k.room IS NOT NULL)
        AND (k.room IS NULL OR k.room > 0)
),
work AS MATERIALIZED (
    SELECT a.*
    FROM asked AS a
    WHERE (SELECT count(*) FROM asked) = 1 OR EXISTS (
        SELECT FROM (VALUES (0, a.m0), (1, a.m1), (2, a.m2), (3, a.m3), (4, a.m4), (5, a.m5)) AS lane (rank, mark)
        CROSS JOIN LATERAL (
            SELECT FROM target_hot AS h
            WHERE h.source_id = a.id AND h.rank = lane.rank::smallint AND h.state IN ('pending', 'deferred') AND h.reserved_by IS NULL
                AND h.not_before >= lane.mark AND h.not_before <= (SELECT at FROM moment)
            LIMIT 1
        ) AS ready
    )
),
quota AS MATERIALIZED (
    SELECT ceil(%(limit)s::numeric / greatest(1, count(*)))::bigint AS n FROM work
),
picked AS MATERIALIZED (
    SELECT found.id, w.id AS source_id, w.probing
    FROM (SELECT * FROM work ORDER BY leased, id) AS w
    CROSS JOIN LATERAL (
        SELECT taken.id, row_number() OVER () AS place
        FROM (
            SELECT ready.id
            FROM (VALUES (0, w.m0), (1, w.m1), (2, w.m2), (3, w.m3), (4, w.m4), (5, w.m5)) AS lane (rank, mark)
            CROSS JOIN LATERAL (
                SELECT h.id
                FROM target_hot AS h
                WHERE h.source_id = w.id AND h.rank = lane.rank::smallint AND h.state IN ('pending', 'deferred') AND h.reserved_by IS NULL
                    AND h.not_before >= lane.mark AND h.not_before <= (SELECT at FROM moment)
                ORDER BY h.not_before, h.id
                LIMIT (SELECT n FROM quota)
                FOR UPDATE SKIP LOCKED
            ) AS ready
            LIMIT (SELECT n FROM quota)
        ) AS taken
    ) AS found
    WHERE found.place <= coalesce(w.room, %(limit)s) AND (found.place = 1 OR NOT w.probing)
    LIMIT %(limit)s
),
probed AS (
    UPDATE source AS s
    SET paused_until = moment.at + interval '30 seconds'
    FROM moment
    WHERE s.id = ANY (ARRAY (
        SELECT q.id FROM source AS q WHERE q.id = ANY (ARRAY (SELECT p.source_id FROM picked AS p WHERE p.probing)) FOR UPDATE SKIP LOCKED
    ))
),
leased AS (
    UPDATE target_hot AS h
    SET state = 'in_progress', lease_owner = %(worker)s, lease_token = h.lease_token + 1,
        lease_expires_at = moment.wall + %(lease)s::interval, attempts = h.attempts + 1,
        scan_remote_modified_at = h.remote_modified_at, scan_started_at = moment.at, scan_request_no = h.request_no,
        scan_moves = h.moves, deferred_reason = NULL
    FROM moment
    WHERE h.id = ANY (ARRAY (SELECT p.id FROM picked AS p))
    RETURNING h.id, h.lease_token, h.source_id, h.admission, h.attempts, h.scan_remote_modified_at, h.scan_started_at, h.scan_request_no,
        h.observed_revision, h.lease_expires_at, h.rank, h.not_before
)
SELECT
    l.id, l.lease_token, s.name, s.kind, t.normalized_target, t.display_name, t.address, t.provider_id, t.attributes::text,
    l.admission::text, l.attempts, l.scan_remote_modified_at, l.scan_started_at, l.scan_request_no, l.observed_revision,
    l.lease_expires_at, l.source_id, l.rank, l.not_before
FROM leased AS l
JOIN source AS s ON s.id = l.source_id
CROSS JOIN LATERAL (
    -- OFFSET 0 keeps this a lookup by key for each row, whatever the planner thinks of the row counts.
    SELECT c.normalized_target, c.display_name, c.address, c.provider_id, c.attributes FROM target AS c WHERE c.id = l.id OFFSET 0
) AS t
ORDER BY l.rank, l.not_before, l.id

-- Fills the hot half of `count` finished targets; every `changed_every`th has changed since (0: none has).
INSERT INTO target_hot (
    id, source_id, state, not_before, remote_modified_at, scan_remote_modified_at, scan_started_at, completed_at,
    changed_at, sort_key, moves, lease_token, scan_request_no
)
SELECT
    n,
    %(source_id)s,
    'done',
    now() - interval '30 days',
    CASE WHEN moved THEN timestamptz '2024-06-01 00:00:00+00' ELSE timestamptz '2024-03-01 00:00:00+00' END,
    timestamptz '2024-03-01 00:00:00+00',
    now() - interval '30 days',
    now() - interval '30 days',
    CASE WHEN moved THEN now() - interval '1 day' + n * interval '1 microsecond' END,
    CASE WHEN moved THEN extract(epoch FROM now() - interval '1 day' + n * interval '1 microsecond')::double precision END,
    CASE WHEN moved THEN 1 ELSE 0 END,
    1,
    0
FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s::bigint - 1) AS n
CROSS JOIN LATERAL (SELECT %(changed_every)s::bigint > 0 AND n %% greatest(%(changed_every)s::bigint, 1) = 0 AS moved) AS m

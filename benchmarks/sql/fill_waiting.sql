-- Fills the hot half of `count` waiting targets, claimable since long ago, oldest first by id.
INSERT INTO target_hot (id, source_id, state, not_before, remote_modified_at)
SELECT n, %(source_id)s, 'pending', now() - interval '30 days' + n * interval '1 millisecond', timestamptz '2024-03-01 00:00:00+00'
FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s::bigint - 1) AS n

-- Admit new targets, second half, in the same transaction: their hot rows, by the ids just given. Two statements because a join of the
-- two sets inside one is planned as if they were tiny.
INSERT INTO target_hot (id, source_id, not_before, remote_modified_at, observed_revision)
SELECT p.id, %(source_id)s, coalesce(%(now)s::timestamptz, now()),
    CASE
        WHEN p.digest THEN coalesce(%(now)s::timestamptz, clock_timestamp())
        WHEN p.at >= '1990-01-01 00:00:00+00' AND p.at <= coalesce(%(now)s::timestamptz, now()) + %(skew)s::interval THEN p.at
    END, p.revision
FROM unnest(%(ids)s::bigint[], %(revisions)s::bytea[], %(times)s::timestamptz[], %(digests)s::boolean[]) AS p (id, revision, at, digest)
ORDER BY p.id

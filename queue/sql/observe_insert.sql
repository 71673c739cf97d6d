-- Admit new targets: identity and hot row together, sorted by the unique key (the order every inserter keeps). Another process
-- may have inserted one just now: it is left out of the answer and compared again.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at, coalesce(%(now)s::timestamptz, clock_timestamp()) AS wall),
page AS MATERIALIZED (
    SELECT * FROM unnest(
        %(names)s::text[], %(provider_ids)s::text[], %(display_names)s::text[], %(addresses)s::text[], %(attributes)s::jsonb[],
        %(revisions)s::bytea[], %(times)s::timestamptz[], %(digests)s::boolean[]
    ) AS u (name, provider_id, display_name, address, attributes, revision, at, digest)
),
added AS (
    INSERT INTO target (source_id, normalized_target, display_name, address, provider_id, attributes, discovered_at)
    SELECT %(source_id)s, p.name, p.display_name, p.address, nullif(p.provider_id, ''), p.attributes, m.at
    FROM page AS p, moment AS m
    ORDER BY p.name
    ON CONFLICT DO NOTHING
    RETURNING id, normalized_target
),
made AS (
    INSERT INTO target_hot (id, source_id, not_before, remote_modified_at, observed_revision)
    SELECT a.id, %(source_id)s, m.at,
        CASE WHEN p.digest THEN m.wall WHEN p.at >= '1990-01-01 00:00:00+00' AND p.at <= m.at + %(skew)s::interval THEN p.at END, p.revision
    FROM added AS a JOIN page AS p ON p.name = a.normalized_target CROSS JOIN moment AS m
)
SELECT normalized_target FROM added

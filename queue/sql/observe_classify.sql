-- Compare a page with what is known, reading only: an unchanged target costs two index lookups and writes nothing (no row version,
-- no WAL, no sequence value). One row comes back for each record that needs a write, and a first row with the counts.
--
-- A record is matched by the provider's stable id first, then by name. OFFSET 0 keeps these lookups by key.
-- digest: the source has no time of its own and observes a content identity; its time is made when it is written.
WITH moment AS MATERIALIZED (SELECT coalesce(%(now)s::timestamptz, now()) AS at),
page AS MATERIALIZED (
    SELECT u.ord, u.name, nullif(u.provider_id, '') AS provider_id, u.display_name, u.address, u.attributes, u.revision,
        u.at, u.word, u.word = 'missing' AND u.revision IS NOT NULL AS digest,
        u.word = 'valid' AND u.at >= '1990-01-01 00:00:00+00' AND u.at <= m.at + %(skew)s::interval AS valid
    FROM moment AS m, unnest(
        %(names)s::text[], %(provider_ids)s::text[], %(display_names)s::text[], %(addresses)s::text[], %(attributes)s::jsonb[],
        %(revisions)s::bytea[], %(times)s::timestamptz[], %(words)s::text[]
    ) WITH ORDINALITY AS u (name, provider_id, display_name, address, attributes, revision, at, word, ord)
),
matched AS MATERIALIZED (
    SELECT p.ord, p.digest, p.valid, p.at, p.word,
        coalesce(i.id, n.id) AS id, i.id IS NOT NULL AND i.normalized_target <> p.name AS renamed,
        n.id AS holder_id, n.id IS NOT NULL AND n.provider_id IS NOT NULL AND p.provider_id IS NOT NULL
            AND n.provider_id <> p.provider_id AS held_by_other,
        n.provider_id IS NULL AND i.id IS NULL AND p.provider_id IS NOT NULL AND n.id IS NOT NULL AS adopts,
        CASE WHEN i.id IS NOT NULL
            THEN i.address <> p.address OR i.display_name <> p.display_name OR i.attributes <> p.attributes OR i.marked
            ELSE n.address <> p.address OR n.display_name <> p.display_name OR n.attributes <> p.attributes OR n.marked
        END AS redressed,
        p.revision
    FROM page AS p
    LEFT JOIN LATERAL (
        SELECT t.id, t.normalized_target, t.address, t.display_name, t.attributes,
            t.absent_since IS NOT NULL OR t.gone_first_at IS NOT NULL AS marked
        FROM target AS t
        WHERE p.provider_id IS NOT NULL AND t.source_id = %(source_id)s AND t.provider_id = p.provider_id
        OFFSET 0
    ) AS i ON true
    LEFT JOIN LATERAL (
        SELECT t.id, t.provider_id, t.address, t.display_name, t.attributes,
            t.absent_since IS NOT NULL OR t.gone_first_at IS NOT NULL AS marked
        FROM target AS t
        WHERE (i.id IS NULL OR i.normalized_target <> p.name) AND t.source_id = %(source_id)s AND t.normalized_target = p.name
        OFFSET 0
    ) AS n ON true
),
weighed AS MATERIALIZED (
    SELECT m.*,
        CASE
            WHEN m.renamed OR m.held_by_other THEN 'rename'
            WHEN m.id IS NULL THEN 'new'
            WHEN h.retire_reason IS NOT NULL AND %(admit)s THEN 'write'
            WHEN m.adopts OR m.redressed THEN 'write'
            WHEN m.revision IS DISTINCT FROM h.observed_revision AND m.revision IS NOT NULL THEN 'write'
            WHEN m.valid AND (h.remote_modified_at IS NULL OR m.at > h.remote_modified_at) THEN 'write'
        END AS act,
        -- A name's former holder says nothing of the time of who takes it over.
        m.valid AND m.at < h.remote_modified_at AND (m.renamed OR NOT m.held_by_other) AS older,
        m.adopts OR m.redressed AS cold
    FROM matched AS m
    LEFT JOIN LATERAL (SELECT q.retire_reason, q.observed_revision, q.remote_modified_at FROM target_hot AS q WHERE q.id = m.id OFFSET 0) AS h ON true
)
SELECT 0 AS ord, NULL AS act, NULL AS id, NULL AS holder_id, false AS cold,
    count(*) FILTER (WHERE id IS NOT NULL AND NOT held_by_other OR renamed) AS known,
    count(*) FILTER (WHERE word = 'missing' AND NOT digest) AS missing,
    count(*) FILTER (WHERE word = 'invalid' OR word = 'valid' AND NOT valid) AS invalid,
    count(*) FILTER (WHERE older) AS older
FROM weighed
UNION ALL
SELECT ord, act, CASE WHEN held_by_other AND NOT renamed THEN NULL ELSE id END, holder_id, cold, 0, 0, 0, 0
FROM weighed WHERE act IS NOT NULL
ORDER BY ord

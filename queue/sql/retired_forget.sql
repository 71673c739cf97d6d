-- Remove everything that is known of these targets but their findings (findings_purge, in the same transaction).
WITH coverage AS (
    DELETE FROM scanner_coverage AS c WHERE c.target_id = ANY (%(ids)s::bigint[])
),
past AS (
    DELETE FROM target_history AS p WHERE p.target_id = ANY (%(ids)s::bigint[])
),
cold AS (
    DELETE FROM target AS t WHERE t.id = ANY (%(ids)s::bigint[])
)
DELETE FROM target_hot AS h WHERE h.id = ANY (%(ids)s::bigint[])

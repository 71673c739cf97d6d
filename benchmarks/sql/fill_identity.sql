-- Fills the cold half of `count` targets of one source, ids from `first` on.
INSERT INTO target (id, source_id, normalized_target, display_name, address, provider_id, discovered_at)
SELECT
    n,
    %(source_id)s,
    'owner-' || n / 50 || '/repository-' || n,
    'Owner-' || n / 50 || '/Repository-' || n,
    'https://git.example.org/owner-' || n / 50 || '/repository-' || n || '.git',
    (700000000 + n)::text,
    now() - interval '30 days'
FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s::bigint - 1) AS n

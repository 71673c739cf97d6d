-- Places that are new, or that came into or went out of the head. Only these are sent.
INSERT INTO finding_place (
    finding_id, scanner, key, path, line, column_no, commit_id, blob_id, in_head, ignore_mark
)
SELECT
    n.finding_id,
    n.scanner,
    n.key,
    n.path,
    n.line,
    n.column_no,
    n.commit_id,
    n.blob_id,
    n.in_head,
    n.ignore_mark
FROM unnest(
    %(finding_ids)s::bigint[],
    %(scanners)s::text[],
    %(keys)s::uuid[],
    %(paths)s::text[],
    %(lines)s::bigint[],
    %(columns)s::bigint[],
    %(commits)s::text[],
    %(blobs)s::text[],
    %(in_heads)s::boolean[],
    %(marks)s::text[]
) AS n (finding_id, scanner, key, path, line, column_no, commit_id, blob_id, in_head, ignore_mark)
ORDER BY n.finding_id, n.scanner, n.key
ON CONFLICT (finding_id, scanner, key) DO UPDATE SET in_head = excluded.in_head

-- Second half of renaming: every affected row gets its name, and remembers the former one (the last 20).
UPDATE target AS t
SET normalized_target = u.name,
    former_names = CASE WHEN u.former = u.name THEN t.former_names
        ELSE (array_remove(t.former_names, u.former) || u.former)[greatest(1, cardinality(array_remove(t.former_names, u.former)) - 18):] END,
    unresolved_reason = CASE WHEN u.lost THEN 'name_taken' WHEN t.unresolved_reason = 'name_taken' THEN NULL ELSE t.unresolved_reason END
FROM unnest(%(ids)s::bigint[], %(names)s::text[], %(formers)s::text[], %(lost)s::boolean[]) AS u (id, name, former, lost)
WHERE t.id = ANY (%(ids)s::bigint[]) AND t.id = u.id

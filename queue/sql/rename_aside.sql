-- First half of renaming: move every affected row out of the way, since a single update of a swap violates the key.
UPDATE target SET normalized_target = 'aside@id:' || id WHERE id = ANY (%(ids)s::bigint[])

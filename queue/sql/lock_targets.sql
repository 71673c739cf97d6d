-- Lock these targets in id order: the order every writer of several rows keeps. The hot row's lock is the target's lock, cold row
-- included.
SELECT h.id, h.state::text FROM target_hot AS h WHERE h.id = ANY (%(ids)s::bigint[]) ORDER BY h.id FOR UPDATE

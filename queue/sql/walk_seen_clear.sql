-- A new walk on this connection forgets the last one.
TRUNCATE walk_seen

-- Who is seen in a complete walk: a temporary table of the cycle's own connection, so that remembering writes no WAL.
CREATE TEMPORARY TABLE IF NOT EXISTS walk_seen (id bigint PRIMARY KEY) ON COMMIT PRESERVE ROWS

-- What a doctor asks of a server: one row.
SELECT
    current_setting('server_version') AS version,
    current_setting('server_version_num')::integer AS version_number,
    current_setting('transaction_isolation') AS isolation,
    current_setting('TimeZone') AS time_zone,
    current_setting('server_encoding') AS encoding,
    current_setting('max_connections')::integer AS max_connections,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
    clock_timestamp() AS at,
    pg_is_in_recovery() AS standby,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    (
        SELECT max(clock_timestamp() - a.xact_start) FROM pg_stat_activity AS a
        WHERE a.xact_start IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
    ) AS oldest_transaction,
    (
        SELECT a.application_name FROM pg_stat_activity AS a
        WHERE a.xact_start IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
        ORDER BY a.xact_start LIMIT 1
    ) AS oldest_application,
    (SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE relname = 'target_hot')::bigint AS dead_rows,
    (SELECT coalesce(sum(n_live_tup), 0) FROM pg_stat_user_tables WHERE relname = 'target_hot')::bigint AS live_rows,
    pg_database_size(current_database()) AS database_bytes

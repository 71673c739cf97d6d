-- For this transaction only: an export of millions may take its time, and whoever reads it may pause.
SELECT
    set_config('statement_timeout', '0', TRUE),
    set_config('idle_in_transaction_session_timeout', '0', TRUE)

-- The raw side of figures 1 and 3 copies a page of observations in here.
CREATE TEMPORARY TABLE stage (
    normalized_target text NOT NULL,
    display_name text NOT NULL,
    address text NOT NULL,
    provider_id text,
    remote_modified_at timestamptz
) ON COMMIT DELETE ROWS

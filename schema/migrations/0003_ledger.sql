-- What the service knows of itself: facts of the deployment that must stay the same, and who did what.

-- One row a fact, written once: the first writer decides, later ones compare.
CREATE TABLE deployment_fact (
    name text PRIMARY KEY CHECK (name <> ''),
    value bytea NOT NULL CHECK (octet_length(value) <= 1024),
    written_at timestamptz NOT NULL DEFAULT now(),
    written_by text NOT NULL DEFAULT ''
);

-- Acts of people on targets, sources and settings; findings have their own life (0002).
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    who text NOT NULL,
    act text NOT NULL CHECK (act <> ''),
    object text NOT NULL,     -- what it was done to, as text: a source, a filter, a target's name
    changed bigint NOT NULL DEFAULT 0 CHECK (changed >= 0),  -- rows that changed
    detail jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(detail) = 'object')
);
CREATE INDEX audit_time ON audit (at);

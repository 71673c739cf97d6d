-- Findings: what scanners found, where it stands, what people decided about it, and its life.
--
-- One row per (target, identity) for good. `life` is what scans say (open, fixed, reopened); triage and ignore rules
-- lie beside it, and the status that people see is computed from all three at the database's time
-- (finding_status below), so an expired triage is open again without anybody writing anything.
--
-- No foreign keys: a key check locks (and so writes) the row it points to, once for every row that is inserted. Only
-- completions insert, with ids that they have just been given; the retention pass removes a target's findings with it
-- (queue/sql/findings_purge.sql).

CREATE TABLE finding (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    target_id      bigint NOT NULL,
    -- HMAC-SHA-256 over target, rule and secret with the deployment's key; the secret itself is never stored.
    identity       bytea NOT NULL CHECK (octet_length(identity) = 32),
    rule           text NOT NULL,
    rule_name      text NOT NULL,
    severity       smallint NOT NULL CHECK (severity BETWEEN 0 AND 4), -- 0 info … 4 critical
    confidence     text NOT NULL DEFAULT '',
    masked         text NOT NULL,
    life           text NOT NULL CHECK (life IN ('open', 'fixed', 'reopened')),
    scanners       text[] NOT NULL,           -- every scanner that ever found it, sorted
    seen_by        text[] NOT NULL,           -- the scanners for which it stands now, sorted
    place_count    bigint NOT NULL DEFAULT 0, -- rows of finding_place
    head_count     bigint NOT NULL DEFAULT 0, -- those of them in the head of the default branch
    unlisted_count bigint NOT NULL DEFAULT 0, -- places that were reported beyond the limit kept per scanner
    first_commit   text,                      -- as given by the scan that found it first
    first_seen_at  timestamptz NOT NULL,
    last_seen_at   timestamptz NOT NULL,      -- the last scan that brought news of it while it stood
    fixed_at       timestamptz,
    reopened_at    timestamptz,
    triage         text CHECK (triage IN ('accepted', 'false_positive')),
    triage_by      text,
    triage_why     text,
    triage_at      timestamptz,
    triage_until   timestamptz,
    ignored_why    text,
    ignored_rule   bigint,
    CONSTRAINT finding_once UNIQUE (target_id, identity),
    CONSTRAINT finding_fixed_is_unseen CHECK ((life = 'fixed') = (cardinality(seen_by) = 0)),
    CONSTRAINT finding_fixed_has_time CHECK (life <> 'fixed' OR fixed_at IS NOT NULL),
    CONSTRAINT finding_was_found CHECK (cardinality(scanners) > 0 AND scanners @> seen_by),
    CONSTRAINT finding_triage_whole CHECK (
        (triage IS NULL) = (triage_by IS NULL)
        AND (triage IS NULL) = (triage_why IS NULL)
        AND (triage IS NULL) = (triage_at IS NULL)
        AND (triage IS NOT NULL OR triage_until IS NULL)
    ),
    CONSTRAINT finding_ignored_has_reason CHECK (ignored_rule IS NULL OR ignored_why IS NOT NULL)
);

-- The standing findings in the order in which lists show them; what is fixed costs them nothing.
CREATE INDEX finding_standing ON finding (severity, id) WHERE life <> 'fixed';
CREATE INDEX finding_by_severity ON finding (severity, id);
CREATE INDEX finding_by_rule ON finding (rule, id);
CREATE INDEX finding_triaged ON finding (triage_until, id) WHERE triage IS NOT NULL;
CREATE INDEX finding_ignored ON finding (ignored_rule, id) WHERE ignored_rule IS NOT NULL;

-- Where a finding stands, per scanner. `key` is a hash of path, line, column, commit and blob: a path is too long for
-- a key of its own.
CREATE TABLE finding_place (
    finding_id  bigint NOT NULL,
    scanner     text NOT NULL,
    key         uuid NOT NULL,
    path        text NOT NULL,
    line        bigint,
    column_no   bigint,
    commit_id   text,
    blob_id     text,
    in_head     boolean NOT NULL,
    ignore_mark text, -- the reason beside an inline ignore mark on that line
    PRIMARY KEY (finding_id, scanner, key)
);

-- The life of a finding: what happened, when, who or which scan did it, and why. Appended only.
CREATE TABLE finding_event (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    finding_id  bigint NOT NULL,
    at          timestamptz NOT NULL,
    kind        text NOT NULL CHECK (kind IN (
        'opened', 'fixed', 'reopened', 'accepted', 'false_positive', 'triage_cleared', 'ignored', 'unignored', 'revealed'
    )),
    by          text NOT NULL,  -- a person, or the scanners of the completion
    why         text NOT NULL DEFAULT '',
    until       timestamptz,    -- for triage
    lease_token bigint          -- the claim whose completion did it
);

CREATE INDEX finding_event_of ON finding_event (finding_id, id);

-- What is to be ignored, and why. A rule is never deleted: removing it is a fact with a person and a time.
CREATE TABLE ignore_rule (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source_id   integer, -- NULL with target_id NULL: everywhere
    target_id   bigint,
    kind        text NOT NULL CHECK (kind IN ('path', 'identity')),
    pattern     text NOT NULL,  -- as written by the person
    regex       text,           -- the pattern as the database matches it
    identity    bytea,
    reason      text NOT NULL CHECK (reason <> ''),
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL,
    removed_by  text,
    removed_at  timestamptz,
    CONSTRAINT ignore_rule_one_scope CHECK (source_id IS NULL OR target_id IS NULL),
    CONSTRAINT ignore_rule_matches CHECK (
        (kind = 'path' AND regex IS NOT NULL AND identity IS NULL)
        OR (kind = 'identity' AND regex IS NULL AND octet_length(identity) = 32)
    ),
    CONSTRAINT ignore_rule_removed_whole CHECK ((removed_at IS NULL) = (removed_by IS NULL))
);

CREATE UNIQUE INDEX ignore_rule_once
    ON ignore_rule (kind, md5(pattern), coalesce(source_id, 0), coalesce(target_id, 0)) WHERE removed_at IS NULL;

-- The code-owners file of a target's default branch, kept as text: owners are worked out when they are shown.
CREATE TABLE target_code_owners (
    target_id bigint PRIMARY KEY,
    path      text NOT NULL,
    body      text NOT NULL,
    stored_at timestamptz NOT NULL
);

-- The status that people see: an active triage, else an ignore rule, else life.
CREATE FUNCTION finding_status(life text, triage text, triage_until timestamptz, ignored_why text, at timestamptz)
RETURNS text
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
RETURN CASE
    WHEN triage IS NOT NULL AND (triage_until IS NULL OR triage_until > at) THEN triage
    WHEN ignored_why IS NOT NULL THEN 'ignored'
    ELSE life
END;

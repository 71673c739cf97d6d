"""Guards of the queue, each with the edit that takes it away and the test that has to notice (reliability F17)."""

from tests.support.mutants import Mutant

_MODEL = "tests/property/test_queue_machine.py"
_PLANS = "tests/database/test_plans_at_scale.py::test_hot_statements_keep_their_index"
_LIMIT = "tests/database/test_plans_at_scale.py::test_statement_never_takes_more_than_its_limit"
_CLOCK = "tests/database/test_clock_is_the_databases.py"


def _spec(name: str) -> str:
    return f"tests/isolation/test_specs.py::test_spec_runs_as_expected[{name}]"


def _sql(name: str, statement: str, test: str, *edits: tuple[str, str]) -> Mutant:
    return Mutant(name=name, file=f"queue/sql/{statement}.sql", edits=edits, test=test)


_TOKEN = " AND h.lease_token = (%(tokens)s::bigint[])[array_position(%(ids)s::bigint[], h.id)]"
_EACH_TOKEN = ((" AND q.lease_token = u.token", ""), (" AND h.lease_token = u.token", ""))
_SKIP = ("FOR UPDATE SKIP LOCKED", "FOR UPDATE")

MUTANTS = (
    # fences
    _sql("a completion without its token", "complete", _MODEL, (_TOKEN, "")),
    _sql("a late completion without its token", "complete", _spec("late_completion"), (_TOKEN, "")),
    _sql("a failure without its token", "end_claim", _MODEL, *_EACH_TOKEN),
    _sql("a heartbeat without its token", "heartbeat", _MODEL, *_EACH_TOKEN),
    _sql(
        "a completion of what is no longer leased",
        "complete",
        _spec("reap_against_complete"),
        (" AND h.lease_owner IS NOT NULL", ""),
    ),
    _sql("a step of a cycle that was ended", "cycle_fence", _spec("two_cycles"), (" AND status = 'running'", "")),
    _sql("a step that does not hold its cycle", "cycle_fence", _spec("two_cycles"), (" FOR UPDATE", "")),
    # locks
    _sql("claims that wait for each other", "claim", _spec("claims_side_by_side"), _SKIP),
    _sql("requeues that wait for each other", "requeue_changed", _spec("two_cycles"), _SKIP),
    _sql("a reaper that waits for a completion", "reap", _spec("reap_against_complete"), _SKIP),
    _sql("completions in the order of the table", "complete", _spec("lock_order"), ("    ORDER BY h.id\n", "")),
    _sql("heartbeats in the order of the caller", "heartbeat", _spec("lock_order"), (" ORDER BY id", "")),
    _sql("observations in the order of the table", "lock_targets", _spec("lock_order"), (" ORDER BY h.id", "")),
    _sql(
        "a limit without its lock",
        "claim_lock",
        _spec("limit"),
        ("SELECT pg_advisory_xact_lock(%(namespace)s::integer, wanted.id)", "SELECT wanted.id, %(namespace)s::integer"),
    ),
    _sql(
        "a limit that the claim ignores",
        "claim",
        _spec("limit"),
        ("found.place <= coalesce(w.room, %(limit)s)", "found.place <= %(limit)s"),
    ),
    # forms
    _sql(
        "a claim that joins what it picked",
        "claim",
        _PLANS,
        ("WHERE h.id = ANY (ARRAY (SELECT p.id FROM picked AS p))", "WHERE h.id IN (SELECT p.id FROM picked AS p)"),
    ),
    _sql(
        "a requeue whose limit is not materialized",
        "requeue_changed",
        _LIMIT,
        ("picked AS MATERIALIZED (\n    SELECT h.id\n", "picked AS (SELECT),\nunused AS (\n    SELECT h.id\n"),
        (
            "WHERE h.id = ANY (ARRAY (SELECT id FROM picked))",
            (
                "WHERE h.id IN (SELECT q.id FROM target_hot AS q WHERE q.source_id = %(source_id)s AND q.state = 'done'"
                " ORDER BY q.sort_key, q.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)"
            ),
        ),
    ),
    # time
    Mutant(
        name="the worker's clock",
        file="queue/leases.py",
        test=_CLOCK,
        edits=(('"worker": worker, "now": now}', '"worker": worker, "now": now or datetime.now().astimezone()}'),),
    ),
    _sql("a claim of what is not due", "claim", _MODEL, (" AND h.not_before <= (SELECT at FROM moment)", "")),
    _sql(
        "a reaper of living leases",
        "reap",
        _MODEL,
        (" AND h.lease_expires_at < (SELECT at FROM moment)", ""),
        (" AND h.lease_expires_at < moment.at", ""),
    ),
    _sql(
        "a time that goes back",
        "observe_update",
        _MODEL,
        ("ELSE greatest(h.remote_modified_at, p.at)", "ELSE coalesce(p.at, h.remote_modified_at)"),
    ),
    _sql(
        "two digests at one instant",
        "observe_update",
        _MODEL,
        (
            "THEN greatest(w.wall, h.remote_modified_at + interval '1 microsecond')",
            "THEN greatest(w.wall, h.remote_modified_at)",
        ),
    ),
    _sql(
        "a time from the future",
        "observe_admit",
        _MODEL,
        (" AND p.at <= coalesce(%(now)s::timestamptz, now()) + %(skew)s::interval", ""),
    ),
    # what changed, and the cap
    Mutant(
        name="changed by an equal time",
        file="schema/migrations/0001_queue.sql",
        test=_MODEL,
        edits=(("SELECT remote_modified_at > coalesce(", "SELECT remote_modified_at >= coalesce("),),
    ),
    _sql(
        "a claim without its snapshot",
        "claim",
        _MODEL,
        ("scan_remote_modified_at = h.remote_modified_at, scan", "scan"),
    ),
    _sql(
        "a requeue without rest",
        "requeue_changed",
        _MODEL,
        ("        AND h.completed_at <= (SELECT at FROM moment) - %(cooldown)s::interval\n", ""),
    ),
    _sql("a requeue of what is reserved", "requeue_changed", _MODEL, ("        AND h.reserved_by IS NULL\n", "")),
    Mutant(
        name="one more than the cap",
        file="queue/intake.py",
        test=_MODEL,
        edits=(('"limit": limit, "cooldown"', '"limit": limit + 1, "cooldown"'),),
    ),
    # attempts and requests
    _sql(
        "attempts that are not counted at claim",
        "claim",
        _MODEL,
        ("attempts = h.attempts + 1", "attempts = greatest(1, h.attempts)"),
    ),
    _sql("a deferral that costs an attempt", "end_claim", _MODEL, ("THEN h.attempts - 1", "THEN h.attempts")),
    _sql("a permanent error that is tried again", "end_claim", _MODEL, ("u.act = 'permanent' OR ", "")),
    _sql(
        "a request lost during the scan",
        "complete",
        _MODEL,
        ("                    WHEN h.request_no > h.scan_request_no THEN 'pending'\n", ""),
    ),
    _sql(
        "requests that are marked, not counted",
        "request",
        _spec("request_during_scan"),
        ("request_no = h.request_no + 1", "request_no = h.scan_request_no + 1"),
    ),
    _sql("a request that touches the unresolved", "request", _MODEL, (" AND h.state <> 'unresolved'", "")),
    _sql(
        "a batch that one source fills",
        "claim",
        _MODEL,
        ("ceil(%(limit)s::numeric / greatest(1, count(*)))", "ceil(%(limit)s::numeric + 0 * count(*))"),
    ),
    # names
    _sql(
        "a swap in one step",
        "rename_aside",
        _MODEL,
        ("SET normalized_target = 'aside@id:' || id", "SET normalized_target = normalized_target"),
    ),
)

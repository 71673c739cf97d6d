"""Guards of the queue, each with the edit that takes it away and the test that has to notice (reliability F17)."""

from tests.support.mutants import Mutant

_PLANS = "tests/database/test_plans_at_scale.py::test_hot_statements_keep_their_index"
_LIMIT = "tests/database/test_plans_at_scale.py::test_statement_never_takes_more_than_its_limit"
_CLOCK = "tests/database/test_clock_is_the_databases.py"


def _queue(file: str, test: str) -> str:
    return f"tests/database/test_queue_{file}.py::{test}"


def _spec(name: str) -> str:
    return f"tests/isolation/test_specs.py::test_spec_runs_as_expected[{name}]"


def _sql(name: str, statement: str, test: str, *edits: tuple[str, str]) -> Mutant:
    return Mutant(name=name, file=f"queue/sql/{statement}.sql", edits=edits, test=test)


_TOKEN = " AND h.lease_token = (%(tokens)s::bigint[])[array_position(%(ids)s::bigint[], h.id)]"
_EACH_TOKEN = ((" AND q.lease_token = u.token", ""), (" AND h.lease_token = u.token", ""))
_SKIP = ("FOR UPDATE SKIP LOCKED", "FOR UPDATE")

MUTANTS = (
    # fences
    _sql(
        "a completion without its token",
        "complete",
        _queue("rescan", "test_t79_a_worker_that_lost_its_lease_cannot_complete"),
        (_TOKEN, ""),
    ),
    _sql("a late completion without its token", "complete", _spec("late_completion"), (_TOKEN, "")),
    _sql(
        "a failure without its token",
        "end_claim",
        _queue("outcomes", "test_t79_a_late_ending_does_not_touch_the_next_claim"),
        *_EACH_TOKEN,
    ),
    _sql(
        "a heartbeat without its token",
        "heartbeat",
        _queue("claims", "test_a_heartbeat_renews_and_says_what_is_still_held"),
        *_EACH_TOKEN,
    ),
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
    _sql(
        "a claim of what is not due",
        "claim",
        _queue("claims", "test_a_waiting_row_is_not_claimed_before_its_time"),
        (" AND h.not_before <= (SELECT at FROM moment)", ""),
    ),
    _sql(
        "a reaper of living leases",
        "reap",
        _queue("claims", "test_the_reaper_gives_expired_leases_back"),
        (" AND h.lease_expires_at < (SELECT at FROM moment)", ""),
        (" AND h.lease_expires_at < moment.at", ""),
    ),
    _sql(
        "a time that goes back",
        "observe_update",
        _queue("observe", "test_t20_a_new_revision_with_an_older_time_moves_no_time_back"),
        ("ELSE greatest(h.remote_modified_at, p.at)", "ELSE coalesce(p.at, h.remote_modified_at)"),
    ),
    _sql(
        "two digests at one instant",
        "observe_update",
        _queue("observe", "test_a_digests_time_is_at_least_the_stored_one_and_a_microsecond"),
        (
            "THEN greatest(w.wall, h.remote_modified_at + interval '1 microsecond')",
            "THEN greatest(w.wall, h.remote_modified_at)",
        ),
    ),
    _sql(
        "a time from the future",
        "observe_admit",
        _queue("observe", "test_t08_t10_t11_a_malformed_or_far_time_is_counted_and_never_stored"),
        (" AND p.at <= coalesce(%(now)s::timestamptz, now()) + %(skew)s::interval", ""),
    ),
    # what changed, and the cap
    Mutant(
        name="changed by an equal time",
        file="schema/migrations/0001_queue.sql",
        test=_queue("rescan", "test_t22_an_update_seen_during_a_scan_yields_exactly_one_later_scan"),
        edits=(("SELECT remote_modified_at > coalesce(", "SELECT remote_modified_at >= coalesce("),),
    ),
    _sql(
        "a claim without its snapshot",
        "claim",
        _queue("rescan", "test_t21_the_claim_copies_the_observed_time_with_the_lease"),
        ("scan_remote_modified_at = h.remote_modified_at, scan", "scan"),
    ),
    _sql(
        "a requeue without rest",
        "requeue_changed",
        _queue("rescan", "test_t37_a_row_rests_since_its_completion"),
        ("        AND h.completed_at <= (SELECT at FROM moment) - %(cooldown)s::interval\n", ""),
    ),
    _sql(
        "a requeue of what is reserved",
        "requeue_changed",
        _queue("rescan", "test_t38_a_reserved_row_is_left_alone"),
        ("        AND h.reserved_by IS NULL\n", ""),
    ),
    Mutant(
        name="one more than the cap",
        file="queue/intake.py",
        test=_queue("rescan", "test_t33_t46_the_cap_is_of_one_source"),
        edits=(('"limit": limit, "cooldown"', '"limit": limit + 1, "cooldown"'),),
    ),
    # attempts and requests
    _sql(
        "attempts that are not counted at claim",
        "claim",
        _queue("outcomes", "test_a_failure_waits_its_backoff_and_fails_at_the_last_attempt"),
        ("attempts = h.attempts + 1", "attempts = greatest(1, h.attempts)"),
    ),
    _sql(
        "a deferral that costs an attempt",
        "end_claim",
        _queue("outcomes", "test_a_deferral_gives_the_attempt_back_and_is_counted_apart"),
        ("THEN h.attempts - 1", "THEN h.attempts"),
    ),
    _sql(
        "a permanent error that is tried again",
        "end_claim",
        _queue("outcomes", "test_a_permanent_error_fails_at_once"),
        ("u.act = 'permanent' OR ", ""),
    ),
    _sql(
        "a request lost during the scan",
        "complete",
        _queue("outcomes", "test_a_request_during_a_scan_puts_the_row_back_at_its_completion"),
        ("                    WHEN h.request_no > h.scan_request_no THEN 'pending'\n", ""),
    ),
    _sql(
        "requests that are marked, not counted",
        "request",
        _spec("request_during_scan"),
        ("request_no = h.request_no + 1", "request_no = h.scan_request_no + 1"),
    ),
    _sql(
        "a request that touches the unresolved",
        "request",
        _queue("requests", "test_a_request_in_every_state"),
        (" AND h.state <> 'unresolved'", ""),
    ),
    _sql(
        "a batch that one source fills",
        "claim",
        _queue("claims", "test_each_source_with_work_gets_its_share_of_a_batch"),
        ("ceil(%(limit)s::numeric / greatest(1, count(*)))", "ceil(%(limit)s::numeric + 0 * count(*))"),
    ),
    # names
    _sql(
        "a swap in one step",
        "rename_aside",
        _queue("names", "test_two_rows_of_one_page_swap_their_names"),
        ("SET normalized_target = 'aside@id:' || id", "SET normalized_target = normalized_target"),
    ),
)

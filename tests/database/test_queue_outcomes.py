"""Outcomes: complete, fail, defer, release, each fenced by the lease token; with coverage and findings."""

from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from resweep.queue import admin
from resweep.queue.census import history
from resweep.queue.intake import observe
from resweep.queue.leases import coverage, reap
from resweep.queue.outcomes import Deferral, Failure, Release, complete, defer, fail, release
from resweep.queue.requests import request
from resweep.schema.records import Admission, Completion, Coverage, State
from tests.database.test_queue_observe import run
from tests.support.findings import finding
from tests.support.findings import report as findings_report
from tests.support.queue import admit, covered, day, finish, row, scan, seen, source, state, take

Conn = Connection[Any]


def one(conn: Conn, *, at: float = 2) -> tuple[int, int]:
    """A claimed target and its token."""
    (target,) = admit(conn, source(conn), "a", day(1), now=day(1))
    (claim,) = take(conn, now=day(at))
    return target, claim.lease_token


def test_a_completion_is_accepted_at_most_once(conn: Conn) -> None:
    target, token = one(conn)
    handed = Completion(target_id=target, lease_token=token, reports=())
    twice = complete(conn, [handed, handed], now=day(3))
    assert [(each.accepted, each.state) for each in twice] == [(True, State.DONE), (False, None)]
    assert complete(conn, [handed])[0].accepted is False
    (past,) = history(conn, target)
    assert (past.outcome, past.admission, past.claimed_at, past.finished_at) == ("done", Admission.NEW, day(2), day(3))


def test_a_stale_and_a_good_token_of_one_target_in_a_batch(conn: Conn) -> None:
    target, token = one(conn)
    reap(conn, now=day(3))
    (again,) = take(conn, now=day(4))
    both = [Completion(target_id=target, lease_token=each, reports=()) for each in (token, again.lease_token)]
    assert [each.accepted for each in complete(conn, both, now=day(4))] == [False, True]
    assert [each.lease_token for each in history(conn, target)] == [2, 1]


def test_one_lost_lease_never_fails_the_rest_of_a_batch(conn: Conn) -> None:
    admit(conn, source(conn), "abc", now=day(1))
    a, b, c = take(conn, now=day(2))
    finish(conn, [b], now=day(2))
    assert finish(conn, [a, b, c], now=day(3)) == [State.DONE, None, State.DONE]


def test_completed_at_is_written_by_completions_only_and_kept(conn: Conn) -> None:
    target, _ = one(conn)
    scan_end = day(3)
    assert take(conn, now=day(3)) == []
    complete(conn, [Completion(target_id=target, lease_token=1, reports=())], now=scan_end)
    request(conn, [target], now=day(4))
    assert row(conn, target)["completed_at"] == scan_end
    (claim,) = take(conn, now=day(5))
    fail(
        conn,
        [Failure(target_id=target, lease_token=claim.lease_token, code="x", message="", permanent=True)],
        now=day(6),
    )
    assert row(conn, target)["completed_at"] == scan_end


def test_a_request_during_a_scan_puts_the_row_back_at_its_completion(conn: Conn) -> None:
    target, token = one(conn)
    for _ in range(3):
        request(conn, [target], now=day(2))
    assert row(conn, target)["admission"] == "new"
    assert (
        complete(conn, [Completion(target_id=target, lease_token=token, reports=())], now=day(3))[0].state
        is State.PENDING
    )
    waiting = row(conn, target)
    assert (waiting["admission"], waiting["attempts"], waiting["completed_at"]) == ("requested", 0, day(3))
    scan(conn, target, now=day(4))
    assert state(conn, target) is State.DONE
    assert [each.admission.value for each in history(conn, target)] == ["requested", "new"]


def test_updates_and_requests_during_one_scan_lead_to_exactly_one_later_scan(conn: Conn) -> None:
    target, token = one(conn)
    observe(conn, source(conn), [seen("a", day(2))], now=day(2))
    request(conn, [target], now=day(2))
    complete(conn, [Completion(target_id=target, lease_token=token, reports=())], now=day(3))
    scan(conn, target, now=day(4))
    assert state(conn, target) is State.DONE
    assert not row(conn, target)["changed"]


def test_a_failure_waits_its_backoff_and_fails_at_the_last_attempt(conn: Conn) -> None:
    target, token = one(conn)
    handed = Failure(target_id=target, lease_token=token, code="crash", message="boom", attempts=1)
    assert fail(conn, [handed], random=lambda: 0.5, now=day(3))[0].state is State.PENDING
    failed = row(conn, target)
    assert failed["not_before"] == day(3) + timedelta(seconds=15)
    assert (failed["last_error_code"], failed["last_error"], failed["last_error_at"]) == ("crash", "boom", day(3))
    for number in range(4, 8):
        (claim,) = take(conn, now=day(number))
        assert claim.attempts == number - 2
        fail(
            conn,
            [
                Failure(
                    target_id=target, lease_token=claim.lease_token, code="crash", message="", attempts=claim.attempts
                )
            ],
            now=day(number),
        )
    assert state(conn, target) is State.FAILED
    assert [each.outcome for each in history(conn, target)] == ["failed", "retried", "retried", "retried", "retried"]


def test_a_permanent_error_fails_at_once(conn: Conn) -> None:
    target, token = one(conn)
    settled = fail(conn, [Failure(target_id=target, lease_token=token, code="gone", message="", permanent=True)])
    assert settled[0].state is State.FAILED


def test_a_success_resets_the_attempts(conn: Conn) -> None:
    target, token = one(conn)
    fail(conn, [Failure(target_id=target, lease_token=token, code="x", message="", delay=timedelta(0))], now=day(3))
    scan(conn, target, now=day(4))
    assert row(conn, target)["attempts"] == 0


@pytest.mark.parametrize("permanent", [True, False])
def test_a_request_during_a_failing_scan_revives_it(conn: Conn, permanent: bool) -> None:
    target, token = one(conn)
    request(conn, [target], now=day(2))
    fail(
        conn,
        [Failure(target_id=target, lease_token=token, code="x", message="", permanent=permanent)],
        max_attempts=1,
        now=day(3),
    )
    revived = row(conn, target)
    assert (revived["state"], revived["admission"], revived["attempts"], revived["not_before"]) == (
        "pending",
        "requested",
        0,
        day(3),
    )


def test_a_deferral_gives_the_attempt_back_and_is_counted_apart(conn: Conn) -> None:
    target, token = one(conn)
    handed = Deferral(target_id=target, lease_token=token, reason="limited", message="until noon", until=day(5))
    assert defer(conn, [handed], now=day(3))[0].state is State.DEFERRED
    put_off = row(conn, target)
    assert (put_off["attempts"], put_off["deferrals"], put_off["not_before"]) == (0, 1, day(5))
    assert (put_off["deferred_reason"], put_off["last_error"]) == ("limited", "until noon")
    conn.execute("UPDATE target_hot SET deferrals = 2147483647")
    (claim,) = take(conn, now=day(6))
    defer(conn, [Deferral(target_id=target, lease_token=claim.lease_token, reason="limited")], now=day(6))
    assert row(conn, target)["deferrals"] == 2147483647


def test_a_release_gives_the_attempt_back_and_notes_no_error(conn: Conn) -> None:
    target, token = one(conn)
    assert release(conn, [Release(target_id=target, lease_token=token)], now=day(3))[0].state is State.PENDING
    back = row(conn, target)
    assert (back["attempts"], back["not_before"], back["last_error_code"]) == (0, day(3), None)
    (claim,) = take(conn, now=day(3))
    release(conn, [Release(target_id=target, lease_token=claim.lease_token, delay=timedelta(minutes=1))], now=day(3))
    assert take(conn, now=day(3)) == []


def test_waiting_never_uses_up_attempts(conn: Conn) -> None:
    target, token = one(conn)
    for number in range(3, 20):
        defer(conn, [Deferral(target_id=target, lease_token=token, reason="limited")], now=day(number))
        (claim,) = take(conn, now=day(number))
        token = claim.lease_token
        assert claim.attempts == 1


@pytest.mark.parametrize("how", ["complete", "fail", "defer", "release", "reap"])
def test_a_leased_row_is_retired_when_its_claim_ends(conn: Conn, how: str) -> None:
    target, token = one(conn)
    assert admin.retire(conn, [target], reason="dropped", now=day(2)) == {target: State.IN_PROGRESS}
    match how:
        case "complete":
            complete(conn, [Completion(target_id=target, lease_token=token, reports=())], now=day(3))
        case "fail":
            fail(conn, [Failure(target_id=target, lease_token=token, code="x", message="")], now=day(3))
        case "defer":
            defer(conn, [Deferral(target_id=target, lease_token=token, reason="x")], now=day(3))
        case "release":
            release(conn, [Release(target_id=target, lease_token=token)], now=day(3))
        case _:
            assert reap(conn, now=day(3)).retired == 1
    ended = row(conn, target)
    assert (ended["state"], ended["retire_reason"], ended["retired_at"]) == ("retired", "dropped", day(3))


def test_every_act_on_a_lost_lease_is_refused(conn: Conn) -> None:
    target, token = one(conn)
    reap(conn, now=day(3))
    before = row(conn, target)
    assert not complete(conn, [Completion(target_id=target, lease_token=token, reports=(covered(),))])[0].accepted
    assert not fail(conn, [Failure(target_id=target, lease_token=token, code="x", message="")])[0].accepted
    assert not defer(conn, [Deferral(target_id=target, lease_token=token, reason="x")])[0].accepted
    assert not release(conn, [Release(target_id=target, lease_token=token)])[0].accepted
    assert row(conn, target) == before
    assert coverage(conn, [target]) == {}
    assert len(history(conn, target)) == 1


def test_coverage_is_kept_per_scanner_and_work_owed_goes_back(conn: Conn) -> None:
    target, token = one(conn)
    tips = ("0a" * 20, "ff" * 20)
    handed = Completion(
        target_id=target, lease_token=token, reports=(covered(tips=tips),), covered_revision=b"r", owes=("semgrep",)
    )
    assert complete(conn, [handed], random=lambda: 0.0, now=day(3))[0].state is State.PENDING
    assert coverage(conn, [target]) == {
        target: [Coverage(scanner="kingfisher", revision=b"r1", fingerprint=b"f1", tips=tips, scanned_at=day(3))]
    }
    waiting = row(conn, target)
    assert (waiting["completed_at"], waiting["covered_revision"], waiting["attempts"], waiting["admission"]) == (
        None,
        None,
        1,
        "new",
    )
    (claim,) = take(conn, now=day(4))
    done = Completion(
        target_id=target,
        lease_token=claim.lease_token,
        reports=(covered("semgrep", fingerprint=b"f9"),),
        covered_revision=b"r",
    )
    assert complete(conn, [done], now=day(5))[0].state is State.DONE
    assert [(each.scanner, each.fingerprint) for each in coverage(conn, [target])[target]] == [
        ("kingfisher", b"f1"),
        ("semgrep", b"f9"),
    ]
    assert row(conn, target)["covered_revision"] == b"r"
    assert [each.outcome for each in history(conn, target)] == ["done", "owing"]


def test_a_scanner_that_never_succeeds_ends_as_failed(conn: Conn) -> None:
    target, token = one(conn)
    for number in range(3, 7):
        handed = Completion(target_id=target, lease_token=token, reports=(), owes=("broken",))
        assert complete(conn, [handed], random=lambda: 0.0, now=day(number))[0].state is State.PENDING
        (claim,) = take(conn, now=day(number))
        token = claim.lease_token
    handed = Completion(target_id=target, lease_token=token, reports=(), owes=("broken",))
    assert complete(conn, [handed], now=day(8))[0].state is State.FAILED
    assert row(conn, target)["last_error_code"] == "owed"


def test_findings_are_written_with_the_completion_and_counted(conn: Conn) -> None:
    target, token = one(conn)
    report = findings_report(finding("one"), finding("two"))
    complete(conn, [Completion(target_id=target, lease_token=token, reports=(report,))], now=day(3))
    (past,) = history(conn, target)
    assert (past.findings, past.new_findings, past.result) == (2, 2, "findings")
    request(conn, [target], now=day(4))
    (claim,) = take(conn, now=day(4))
    complete(conn, [Completion(target_id=target, lease_token=claim.lease_token, reports=(report,))], now=day(5))
    assert [(each.findings, each.new_findings) for each in history(conn, target)] == [(2, 0), (2, 2)]


def test_on_a_connection_without_a_transaction_findings_and_completion_stand_or_fall_together(
    database_url: str,
) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        target, token = one(conn)
        conn.execute("ALTER TABLE finding ADD CONSTRAINT broken CHECK (false) NOT VALID")
        report = findings_report(finding("one"))
        with pytest.raises(psycopg.errors.CheckViolation):
            complete(conn, [Completion(target_id=target, lease_token=token, reports=(report,))])
        assert state(conn, target) is State.IN_PROGRESS
        assert history(conn, target) == []


def test_a_lost_leases_findings_are_thrown_away(conn: Conn) -> None:
    target, token = one(conn)
    reap(conn, now=day(3))
    complete(conn, [Completion(target_id=target, lease_token=token, reports=(findings_report(finding("one")),))])
    assert conn.execute("SELECT FROM finding").fetchall() == []


def test_reap_and_complete_at_one_moment_have_one_winner(database_url: str) -> None:
    with psycopg.connect(database_url) as setup:
        admit(setup, source(setup), [f"r{n}" for n in range(60)], day(1), now=day(1))
        claims = take(setup, now=day(2))
        setup.commit()
    start = Barrier(2)
    won: dict[str, int] = {}

    def end() -> None:
        with psycopg.connect(database_url) as conn:
            start.wait()
            for each in claims:
                won["complete"] = won.get("complete", 0) + sum(s is not None for s in finish(conn, [each], now=day(3)))
                conn.commit()

    def sweep() -> None:
        with psycopg.connect(database_url) as conn:
            start.wait()
            for _ in range(60):
                won["reap"] = won.get("reap", 0) + reap(conn, limit=1, now=day(3)).leases
                conn.commit()

    run([Thread(target=end), Thread(target=sweep)])
    assert won["complete"] + won["reap"] == 60
    with psycopg.connect(database_url) as conn:
        assert len(conn.execute("SELECT FROM target_history").fetchall()) == 60


def test_a_recheck_time_is_kept_and_comes_due(conn: Conn) -> None:
    from resweep.queue.policy import due_rechecks, settle_rechecks  # noqa: PLC0415 -- one test needs it

    target, token = one(conn)
    complete(conn, [Completion(target_id=target, lease_token=token, reports=(), recheck_at=day(5))], now=day(3))
    made = source(conn)
    assert due_rechecks(conn, made, now=day(4)) == []
    assert [each.target_id for each in due_rechecks(conn, made, now=day(5))] == [target]
    assert settle_rechecks(conn, [target]) == 1
    assert due_rechecks(conn, made, now=day(6)) == []


@pytest.mark.parametrize("act", ["fail", "defer", "release"])
def test_t79_a_late_ending_does_not_touch_the_next_claim(conn: Conn, act: str) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], now=day(1))
    (late,) = take(conn, now=day(2))
    assert reap(conn, now=day(3)).pending == 1
    (mine,) = take(conn, now=day(4))
    before = row(conn, a)
    target, token = late.target_id, late.lease_token
    if act == "fail":
        settled = fail(conn, [Failure(target_id=target, lease_token=token, code="x", message="late")], now=day(4))
    elif act == "defer":
        settled = defer(conn, [Deferral(target_id=target, lease_token=token, until=day(9), reason="late")], now=day(4))
    else:
        settled = release(conn, [Release(target_id=target, lease_token=token)], now=day(4))
    assert [each.accepted for each in settled] == [False]
    assert row(conn, a) == before
    assert finish(conn, [mine], now=day(4)) == [State.DONE]

"""Triage: a person's decision sticks to the finding, ends by the database's clock, and is recorded."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from resweep.queue.findings import store
from resweep.queue.findings_reads import FindingFilter, count_findings, get_finding, life
from resweep.queue.triage import Decision, Verdict, decide, expire, note_reveal
from resweep.schema.errors import UsageFault
from tests.support.findings import add_targets, completion, finding, finding_ids, report, versions

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def _one(conn: Connection[Any]) -> tuple[int, int]:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one")))], now=NOW)
    return target, finding_ids(conn, target)[0]


def _status(conn: Connection[Any], finding_id: int, now: datetime = NOW) -> str:
    row = get_finding(conn, finding_id, now=now)
    assert row is not None
    return row.status


def _decision(verdict: Verdict, **changes: Any) -> Decision:
    return Decision(verdict=verdict, by="ann", why="a test key", **changes)


def test_a_decision_is_recorded_with_who_when_why_and_until(conn: Connection[Any]) -> None:
    _, finding_id = _one(conn)
    until = NOW + timedelta(days=30)
    assert decide(conn, [finding_id], _decision(Verdict.ACCEPTED, until=until), now=NOW) == [finding_id]
    row = get_finding(conn, finding_id, now=NOW)
    assert row is not None
    assert row.triage is not None
    assert (row.triage.by, row.triage.why, row.triage.at, row.triage.until) == ("ann", "a test key", NOW, until)
    last = life(conn, finding_id)[-1]
    assert (last.kind, last.by, last.why, last.until) == ("accepted", "ann", "a test key", until)


def test_an_expired_decision_is_open_again_without_a_write(conn: Connection[Any]) -> None:
    _, finding_id = _one(conn)
    decide(conn, [finding_id], _decision(Verdict.FALSE_POSITIVE, until=NOW + timedelta(hours=1)), now=NOW)
    conn.commit()
    before = versions(conn)
    assert _status(conn, finding_id) == "false_positive"
    later = NOW + timedelta(hours=1)
    assert _status(conn, finding_id, later) == "open"
    assert count_findings(conn, FindingFilter(), now=later) == {("open", "high"): 1}
    conn.commit()
    assert versions(conn) == before
    assert expire(conn, now=NOW) == 0
    assert expire(conn, now=later) == 1
    assert [event.kind for event in life(conn, finding_id)] == ["opened", "false_positive", "triage_cleared"]
    assert _status(conn, finding_id, NOW) == "open"


def test_a_decision_outlives_a_fix_and_a_reopening(conn: Connection[Any]) -> None:
    target, finding_id = _one(conn)
    decide(conn, [finding_id], _decision(Verdict.ACCEPTED), now=NOW)
    store(conn, [completion(target, report(), lease_token=2)], now=NOW)
    assert _status(conn, finding_id) == "accepted"
    store(conn, [completion(target, report(finding("one")), lease_token=3)], now=NOW)
    assert _status(conn, finding_id) == "accepted"
    decide(conn, [finding_id], _decision(Verdict.OPEN), now=NOW)
    assert _status(conn, finding_id) == "reopened"


def test_the_same_decision_again_writes_nothing(conn: Connection[Any]) -> None:
    _, finding_id = _one(conn)
    decide(conn, [finding_id], _decision(Verdict.ACCEPTED), now=NOW)
    conn.commit()
    before = len(life(conn, finding_id))
    assert decide(conn, [finding_id], _decision(Verdict.ACCEPTED), now=NOW + timedelta(days=1)) == []
    assert len(life(conn, finding_id)) == before
    assert decide(conn, [finding_id], Decision(verdict=Verdict.ACCEPTED, by="bob", why="x"), now=NOW) == [finding_id]


@pytest.mark.parametrize(
    ("decision", "says"),
    [
        (Decision(verdict=Verdict.ACCEPTED, by="ann"), "--why"),
        (Decision(verdict=Verdict.ACCEPTED, by=" ", why="x"), "--who"),
        (Decision(verdict=Verdict.OPEN, by="ann", until=NOW + timedelta(1)), "--until"),
        (Decision(verdict=Verdict.ACCEPTED, by="ann", why="x", until=NOW), "not ahead"),
        (Decision(verdict=Verdict.ACCEPTED, by="ann", why="x", until=datetime(2027, 1, 1)), "time zone"),  # noqa: DTZ001 -- a time without a zone is what is refused
    ],
)
def test_a_decision_that_says_too_little_is_refused(conn: Connection[Any], decision: Decision, says: str) -> None:
    _, finding_id = _one(conn)
    with pytest.raises(UsageFault, match=says):
        decide(conn, [finding_id], decision, now=NOW)
    assert _status(conn, finding_id) == "open"


def test_hostile_reasons_are_stored_harmlessly(conn: Connection[Any]) -> None:
    _, finding_id = _one(conn)
    decide(
        conn, [finding_id], Decision(verdict=Verdict.ACCEPTED, by="a\x00b\udc80", why="\x1b[2J\x00" * 3_000), now=NOW
    )
    row = get_finding(conn, finding_id, now=NOW)
    assert row is not None
    assert row.triage is not None
    assert "\x00" not in row.triage.by + row.triage.why


def test_showing_a_secret_is_in_the_life(conn: Connection[Any]) -> None:
    _, finding_id = _one(conn)
    note_reveal(conn, finding_id, by="ann", why="rotating", now=NOW)
    assert (life(conn, finding_id)[-1].kind, life(conn, finding_id)[-1].by) == ("revealed", "ann")
    with pytest.raises(UsageFault, match="--who"):
        note_reveal(conn, finding_id, by="", why="")


def test_decisions_and_scans_lock_the_same_rows_in_the_same_order(conn: Connection[Any], database_url: str) -> None:
    (target,) = add_targets(conn)
    names = [f"f{n}" for n in range(5)]
    store(conn, [completion(target, report(*(finding(name) for name in names)))])
    ids = finding_ids(conn, target)
    conn.commit()
    errors: list[BaseException] = []

    def in_transaction(work: Callable[[Connection[Any]], object]) -> threading.Thread:
        def run() -> None:
            try:
                with psycopg.connect(database_url) as mine:
                    work(mine)
            except psycopg.Error as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    # Both are stopped at the row in the middle: in one order the second waits for the first, in two they deadlock.
    conn.execute("SELECT id FROM finding WHERE id = %s FOR UPDATE", (ids[2],))
    first = in_transaction(lambda mine: decide(mine, ids[::-1], _decision(Verdict.ACCEPTED)))
    _wait_for_waiters(database_url, 1)
    second = in_transaction(lambda mine: store(mine, [completion(target, report(), lease_token=2)]))
    _wait_for_waiters(database_url, 2)
    conn.commit()
    first.join()
    second.join()
    assert errors == []
    kinds = [event.kind for event in life(conn, ids[0])]
    assert sorted(kinds) == ["accepted", "fixed", "opened"]


def _wait_for_waiters(database_url: str, count: int) -> None:
    """Wait until so many sessions of this database wait for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(database_url, autocommit=True) as watcher:
        for _ in range(500):
            row = watcher.execute(query).fetchone()
            if row is not None and row[0] >= count:
                return
            time.sleep(0.02)
    message = f"{count} sessions should wait for a lock and do not"
    raise AssertionError(message)

"""The worker pool on a real database: slots, leases kept and lost, an orderly end, outages (promises 3 to 9)."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from resweep.queue import census, leases
from resweep.queue.census import Filter
from resweep.queue.outcomes import Failure
from resweep.queue.requests import request
from resweep.runner.attempt import Verdict
from resweep.runner.events import DatabaseAway, DatabaseBack, Event, LeaseWasLost, ScanEnded
from resweep.runner.scanners.base import ScanInterrupted
from resweep.runner.wiring import identity
from resweep.runner.workers import PoolSettings, WorkerPool
from resweep.schema.clock import SystemClock
from resweep.schema.database import Database
from resweep.schema.records import Claim, Completion, Coverage, State
from tests.support.queue import Conn, admit, source

Work = Callable[[Claim, threading.Event], Verdict | None]


def done(claim: Claim) -> Verdict:
    return Verdict(ending=Completion(target_id=claim.target_id, lease_token=claim.lease_token, reports=()))


class Scripted:
    """Work that a test decides; notes how many claims are worked on at once."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._lock = threading.Lock()
        self.now = self.most = 0
        self.seen: list[Claim] = []

    def run(self, claim: Claim, coverage: Sequence[Coverage], cancel: threading.Event) -> Verdict:
        del coverage
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.seen.append(claim)
        try:
            return self._work(claim, cancel) or done(claim)
        finally:
            with self._lock:
                self.now -= 1


class Heard:
    """Keeps events, and waits for them."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def wait(self, kind: type[Any], count: int = 1, seconds: float = 30.0) -> list[Any]:
        until(lambda: len(self.of(kind)) >= count, seconds, f"{count} x {kind.__name__}: {self.events}")
        return self.of(kind)


def until(met: Callable[[], bool], seconds: float = 30.0, what: str = "it") -> None:
    ends = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < ends, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def interruptible(seconds: float) -> Work:
    def work(_claim: Claim, cancel: threading.Event) -> None:
        if cancel.wait(seconds):
            raise ScanInterrupted("told to stop")

    return work


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def run(database: Database, heard: Heard) -> Callable[..., Any]:
    @contextmanager
    def running(
        work: Scripted, *, slots: int = 2, lease: float = 8.0, **settings: Any
    ) -> Generator[WorkerPool, None, None]:
        pool = WorkerPool(
            database,
            work,
            identity(),
            PoolSettings(slots=slots, lease=timedelta(seconds=lease), max_attempts=3, **settings),
            tell=heard,
            clock=SystemClock(),
        )
        pool.start()
        try:
            yield pool
        finally:
            pool.stop(0.0)

    return running


def fill(conn: Conn, count: int) -> int:
    source_id = source(conn)
    admit(conn, source_id, [f"t{number}" for number in range(count)])
    conn.commit()
    return source_id


def rows(conn: Conn) -> dict[State, int]:
    conn.rollback()
    found: dict[State, int] = {}
    for row in census.listing(conn, Filter(), limit=1000).rows:
        found[row.state] = found.get(row.state, 0) + 1
    return found


def test_every_target_is_worked_on_once_with_never_more_than_the_slots(conn: Conn, run: Any, heard: Heard) -> None:
    fill(conn, 25)
    work = Scripted(lambda _claim, _cancel: time.sleep(0.02))
    with run(work, slots=3) as pool:
        until(lambda: pool.quiet)
    assert len({claim.target_id for claim in work.seen}) == len(work.seen) == 25
    assert work.most <= 3
    assert rows(conn) == {State.DONE: 25}
    assert all(event.accepted for event in heard.of(ScanEnded))


def test_a_worker_claims_no_more_than_it_can_work_on(conn: Conn, run: Any) -> None:
    fill(conn, 10)
    gate = threading.Event()

    def held(_claim: Claim, _cancel: threading.Event) -> None:
        gate.wait(20)

    with run(Scripted(held), slots=2):
        until(lambda: rows(conn).get(State.IN_PROGRESS, 0) == 2)
        time.sleep(0.3)
        assert rows(conn) == {State.IN_PROGRESS: 2, State.PENDING: 8}
        gate.set()


def test_promise_5_a_healthy_long_scan_keeps_its_lease(conn: Conn, run: Any, database: Database, heard: Heard) -> None:
    fill(conn, 1)
    work = Scripted(interruptible(7.0))
    with run(work, lease=2.0):
        until(lambda: bool(work.seen))
        for _ in range(12):  # the reaper looks all the time, and never finds anything
            assert database.run(leases.reap).leases == 0
            time.sleep(0.5)
        ended = heard.wait(ScanEnded)[0]
    assert ended.accepted
    assert len(work.seen) == 1
    assert heard.of(LeaseWasLost) == []


def test_promise_3_a_lease_that_was_taken_stops_the_scanner_and_its_result_is_refused(
    conn: Conn, run: Any, heard: Heard
) -> None:
    fill(conn, 1)
    stopped = threading.Event()

    def work(claim: Claim, cancel: threading.Event) -> None:
        if claim.lease_token == 1:
            assert cancel.wait(20)
            stopped.set()
            raise ScanInterrupted("told to stop")

    scripted = Scripted(work)
    with run(scripted, lease=4.0) as pool:
        until(lambda: bool(scripted.seen))
        conn.execute("UPDATE target_hot SET lease_expires_at = now() - interval '1 second'")
        conn.commit()
        leases.reap(conn)
        conn.commit()
        lost = heard.wait(LeaseWasLost)[0]
        assert stopped.wait(5)
        until(lambda: pool.quiet)
    assert (lost.why, lost.claim.lease_token) == ("taken", 1)
    # Which of the two ends first is not promised: the next claim need not wait for the old scanner's end.
    assert sorted((event.claim.lease_token, event.accepted) for event in heard.of(ScanEnded)) == [(1, False), (2, True)]
    assert rows(conn) == {State.DONE: 1}


def test_promise_5_a_worker_that_cannot_renew_stops_its_scanner_before_its_lease_ends(
    conn: Conn, run: Any, heard: Heard
) -> None:
    fill(conn, 1)
    stopped_at: list[float] = []

    def work(_claim: Claim, cancel: threading.Event) -> None:
        assert cancel.wait(30)
        stopped_at.append(time.monotonic())
        raise ScanInterrupted("told to stop")

    scripted = Scripted(work)
    with run(scripted, lease=6.0):
        until(lambda: bool(scripted.seen))
        with conn.transaction():
            # Whoever holds the row keeps every renewal waiting, as a database that hangs does.
            conn.execute("SELECT FROM target_hot FOR UPDATE")
            expires = conn.execute(
                "SELECT extract(epoch FROM lease_expires_at - clock_timestamp()) FROM target_hot"
            ).fetchone()
            assert expires is not None
            ends = time.monotonic() + float(expires[0])
            lost = heard.wait(LeaseWasLost, seconds=20)[0]
            until(lambda: bool(stopped_at))
        assert lost.why == "unrenewed"
        assert stopped_at[0] < ends
        heard.wait(ScanEnded)
        until(lambda: rows(conn) != {State.IN_PROGRESS: 1})


def test_an_orderly_end_lets_running_scans_finish_and_claims_nothing_more(conn: Conn, run: Any, heard: Heard) -> None:
    fill(conn, 6)
    work = Scripted(interruptible(1.0))
    with run(work, slots=2) as pool:
        until(lambda: len(work.seen) == 2)
        pool.stop(20.0)
    assert len(work.seen) == 2
    assert rows(conn) == {State.DONE: 2, State.PENDING: 4}


def test_scans_that_outlast_the_grace_are_given_back_without_an_attempt(conn: Conn, run: Any, heard: Heard) -> None:
    fill(conn, 1)
    work = Scripted(interruptible(60.0))
    with run(work) as pool:
        until(lambda: bool(work.seen))
        began = time.monotonic()
        pool.stop(0.5)
        assert time.monotonic() - began < 10
    conn.rollback()
    (row,) = census.listing(conn, Filter()).rows
    assert (row.state, row.attempts, row.lease_owner) == (State.PENDING, 0, None)
    assert [(event.ending, event.code) for event in heard.of(ScanEnded)] == [("released", "interrupted")]


def test_a_second_signal_cuts_the_grace_short(conn: Conn, run: Any) -> None:
    fill(conn, 1)
    work = Scripted(interruptible(60.0))
    at_once = threading.Event()
    with run(work) as pool:
        until(lambda: bool(work.seen))
        threading.Timer(0.3, at_once.set).start()
        began = time.monotonic()
        pool.stop(60.0, at_once=at_once)
    assert time.monotonic() - began < 10
    assert rows(conn) == {State.PENDING: 1}


def test_promise_6_one_target_that_breaks_the_worker_stops_no_other(conn: Conn, run: Any) -> None:
    fill(conn, 5)

    def work(claim: Claim, _cancel: threading.Event) -> None:
        if claim.name == "t2":
            raise ZeroDivisionError("a fault of ours")

    with run(Scripted(work)) as pool:
        until(lambda: pool.quiet)
    assert rows(conn) == {State.DONE: 4, State.PENDING: 1}
    (row,) = census.listing(conn, Filter(states=(State.PENDING,))).rows
    assert (row.name, row.attempts, row.last_error_code) == ("t2", 1, "internal")
    assert "a fault of ours" in (row.last_error or "")


def test_one_result_that_cannot_be_stored_stops_no_other_of_its_batch(conn: Conn, run: Any) -> None:
    fill(conn, 4)

    def work(claim: Claim, _cancel: threading.Event) -> Verdict:
        revision = b"x" * 65 if claim.name == "t1" else b"x" * 32  # a check constraint refuses the long one
        return Verdict(
            ending=Completion(
                target_id=claim.target_id, lease_token=claim.lease_token, reports=(), covered_revision=revision
            )
        )

    with run(Scripted(work), slots=4) as pool:
        until(lambda: pool.quiet)
    assert rows(conn) == {State.DONE: 3, State.PENDING: 1}


def test_attempts_are_counted_and_the_last_one_fails_the_target(conn: Conn, run: Any) -> None:
    fill(conn, 1)

    def work(claim: Claim, _cancel: threading.Event) -> Verdict:
        return Verdict(
            ending=Failure(
                target_id=claim.target_id,
                lease_token=claim.lease_token,
                code="broken",
                message="no",
                attempts=claim.attempts,
                delay=timedelta(0),
            )
        )

    scripted = Scripted(work)
    with run(scripted) as pool:
        until(lambda: rows(conn) == {State.FAILED: 1})
        until(lambda: pool.quiet)
    assert [claim.attempts for claim in scripted.seen] == [1, 2, 3]


def test_promise_9_results_outlive_an_outage_of_the_database(run: Any, heard: Heard, database: Database) -> None:
    with database.connection() as conn:
        fill(conn, 1)
        name = conn.info.dbname
    gate = threading.Event()

    def work(_claim: Claim, cancel: threading.Event) -> None:
        gate.wait(30)

    scripted = Scripted(work)
    with run(scripted, lease=30.0) as pool:
        until(lambda: bool(scripted.seen))
        server = make_conninfo(database.conninfo, dbname="postgres", options="")
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            gate.set()
            heard.wait(DatabaseAway, seconds=40)
            time.sleep(1.0)
            assert heard.of(ScanEnded) == []
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
        ended = heard.wait(ScanEnded, seconds=60)[0]
        assert ended.accepted
        heard.wait(DatabaseBack, seconds=60)
        until(lambda: pool.quiet, 60)


def test_sleeping_workers_are_woken_long_before_their_poll(conn: Conn, run: Any) -> None:
    source_id = fill(conn, 1)
    work = Scripted(lambda _claim, _cancel: None)
    with run(work) as pool:
        until(lambda: pool.quiet)
        time.sleep(1.0)  # asleep by now
        for number in range(3):
            began = time.monotonic()
            admit(conn, source_id, [f"new{number}"])
            conn.commit()
            until(lambda number=number: len(work.seen) == number + 2, 10)  # type: ignore[misc]
            assert time.monotonic() - began < 2.0
            time.sleep(0.7)


def test_a_request_during_the_scan_leads_to_exactly_one_more(conn: Conn, run: Any) -> None:
    fill(conn, 1)
    gate = threading.Event()

    def work(_claim: Claim, _cancel: threading.Event) -> None:
        gate.wait(20)

    scripted = Scripted(work)
    with run(scripted) as pool:
        until(lambda: bool(scripted.seen))
        for _ in range(3):
            request(conn, [scripted.seen[0].target_id])
            conn.commit()
        gate.set()
        until(lambda: len(scripted.seen) == 2)
        until(lambda: pool.quiet)
    assert len(scripted.seen) == 2
    assert rows(conn) == {State.DONE: 1}


def test_the_limit_over_all_processes_holds(conn: Conn, run: Any) -> None:
    fill(conn, 12)
    work = Scripted(lambda _claim, _cancel: time.sleep(0.05))
    with run(work, slots=4, max_in_progress=2) as one, run(work, slots=4, max_in_progress=2) as two:
        until(lambda: one.quiet and two.quiet)
    assert rows(conn) == {State.DONE: 12}
    assert work.most <= 2

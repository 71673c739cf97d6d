"""F8: four writers observe overlapping parts of five thousand targets while others claim and ask: no deadlock."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from resweep.queue import intake, leases, outcomes, requests, sources
from resweep.schema.database import Connection, Database
from resweep.schema.records import Completion
from tests.support.queue import day, new_worker, seen

WRITERS, BATCHES, BATCH, TARGETS = 4, 60, 2000, 5000
pytestmark = pytest.mark.timeout(300)


def _deadlocks(conn: Connection) -> int:
    """What the server counted in this database."""
    conn.rollback()
    conn.execute("SELECT pg_stat_clear_snapshot()")
    found = conn.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert found is not None
    return int(found[0])


def test_f8_overlapping_batches_in_any_order_never_deadlock(
    database: Database, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source_id = database.run(lambda conn: sources.register(conn, name="many", kind="huggingface"))
    names = [f"t{number:05}" for number in range(TARGETS)]
    writing = threading.Event()
    writing.set()

    def write(number: int) -> int:
        chooser = random.Random(number)
        moved = 0
        for batch in range(BATCHES // WRITERS):
            chosen = chooser.sample(names, BATCH)  # in an order of its own, as a provider lists them
            at = day(2 + batch + number / 10)
            page = [seen(name, at) for name in chosen]
            counts = database.run(lambda conn, page=page: intake.observe(conn, source_id, page), attempts=1)  # type: ignore[misc]
            moved += counts.queued_new_count + counts.moved_count
        return moved

    def work(_number: int) -> int:
        worker, done = new_worker(), 0
        while writing.is_set():
            claims = database.run(lambda conn: leases.claim(conn, worker, sources=None, limit=50), attempts=1)
            handed = [Completion(target_id=c.target_id, lease_token=c.lease_token, reports=()) for c in claims]
            random.Random(done).shuffle(handed)
            database.run(lambda conn, handed=handed: outcomes.complete(conn, handed), attempts=1)  # type: ignore[misc]
            done += len(handed)
        return done

    def ask(number: int) -> int:
        chooser, asked = random.Random(number), 0
        while writing.is_set():
            with database.connection() as conn:
                rows = conn.execute("SELECT id FROM target TABLESAMPLE BERNOULLI (5)").fetchall()
            ids = [row[0] for row in rows]
            chooser.shuffle(ids)
            database.run(lambda conn, ids=ids: requests.request(conn, ids), attempts=1)  # type: ignore[misc]
            asked += len(ids)
            time.sleep(0.02)
        return asked

    began = time.monotonic()
    with psycopg.connect(database_url) as watch, ThreadPoolExecutor(WRITERS + 2) as pool:
        before = _deadlocks(watch)
        others = [pool.submit(work, 0), pool.submit(ask, 0)]
        try:
            moved = sum(pool.map(write, range(WRITERS)))  # attempts=1: a deadlock would be raised here
        finally:
            writing.clear()
        seconds = time.monotonic() - began
        done, asked = (each.result(60) for each in others)
        time.sleep(1.5)  # a session hands its counts in after a second
        deadlocks = _deadlocks(watch) - before
    with capsys.disabled():
        print(
            f"\nF8: {BATCHES} batches of {BATCH} of {TARGETS} by {WRITERS} writers in {seconds:.1f} s, {moved} rows"
            f" written, beside {done} completions and {asked} requests: {deadlocks} deadlocks"
        )
    assert moved >= TARGETS
    assert done > 0
    assert asked > 0
    assert deadlocks == 0


def test_f8_the_count_of_deadlocks_can_see_one(database_url: str) -> None:
    """The instrument: two sessions that lock two rows in opposite order are counted."""
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute("CREATE TABLE pair (n int PRIMARY KEY); INSERT INTO pair VALUES (1), (2)")
    with psycopg.connect(database_url) as one, psycopg.connect(database_url) as two, ThreadPoolExecutor(1) as pool:
        before = _deadlocks(one)
        one.execute("SELECT FROM pair WHERE n = 1 FOR UPDATE")
        two.execute("SELECT FROM pair WHERE n = 2 FOR UPDATE")
        waiting = pool.submit(two.execute, "SELECT FROM pair WHERE n = 1 FOR UPDATE")
        fallen = 0
        steps: tuple[Callable[[], object], ...] = (
            lambda: one.execute("SELECT FROM pair WHERE n = 2 FOR UPDATE"),
            lambda: waiting.result(30),
        )
        for step in steps:
            try:
                step()
            except psycopg.errors.DeadlockDetected:
                fallen += 1
                one.rollback()
        two.rollback()
        assert fallen == 1
        time.sleep(1.5)
        for session in (one, two):
            session.rollback()
            session.execute("SELECT 1")
            session.rollback()
        time.sleep(1.5)
        with psycopg.connect(database_url) as watch:
            assert _deadlocks(watch) - before == 1

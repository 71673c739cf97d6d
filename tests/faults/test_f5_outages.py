"""F5: the server restarts, all backends are killed, connections are used up, the listener dies: all work is done."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from resweep.queue import leases
from resweep.runner.attempt import Verdict
from resweep.runner.wiring import identity
from resweep.runner.workers import PoolSettings, WorkerPool
from resweep.schema import migrate
from resweep.schema.clock import SystemClock
from resweep.schema.database import Database
from resweep.schema.embedded import EmbeddedPostgres
from resweep.schema.records import Claim, Completion, Coverage
from tests.faults.test_embedded import kill_tree
from tests.support.processes import wait_until
from tests.support.queue import admit, source

TARGETS = 300
pytestmark = [pytest.mark.timeout(240), pytest.mark.xdist_group("killed servers")]
_MINE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'worker' AND query LIKE %s"


class Quick:
    """Work that takes a moment."""

    def run(self, claim: Claim, coverage: Sequence[Coverage], cancel: threading.Event) -> Verdict:
        """Wait, be done."""
        del coverage
        cancel.wait(0.03)
        return Verdict(ending=Completion(target_id=claim.target_id, lease_token=claim.lease_token, reports=()))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    settings = {"max_connections": "24", "superuser_reserved_connections": "0", "reserved_connections": "0"}
    embedded = EmbeddedPostgres(tmp_path, settings={**settings, "max_wal_senders": "0"})
    yield embedded
    embedded.stop()


def _break(fault: str, server: EmbeddedPostgres, url: str) -> None:
    if fault in {"restart", "kill -9"}:
        pid = server.status().pid
        assert pid is not None
        if fault == "restart":
            os.kill(pid, signal.SIGINT)  # a fast shutdown
        else:
            kill_tree(pid)
        assert wait_until(lambda: server.status().state == "stopped", 30)
        time.sleep(1.0)
        server.start()
        return
    with psycopg.connect(url, autocommit=True) as admin:
        if fault == "connections exhausted":
            held: list[psycopg.Connection] = []
            admin.execute(_MINE, ("%",))
            ends = time.monotonic() + 4
            while time.monotonic() < ends:
                with suppress(psycopg.OperationalError):
                    held.append(psycopg.connect(url))
            assert len(held) > 5
            for each in held:
                each.close()
            return
        for _ in range(5 if fault == "repeated kills" else 1):
            admin.execute(_MINE, ("LISTEN%" if fault == "listener killed" else "%",))
            time.sleep(0.3)


def _done(url: str) -> int:
    with suppress(psycopg.OperationalError), psycopg.connect(url) as conn:
        found = conn.execute("SELECT count(*) FROM target_history WHERE outcome = 'done'").fetchone()
        return int(found[0]) if found else 0
    return -1


@pytest.mark.parametrize(
    "fault", ["restart", "kill -9", "backends killed", "repeated kills", "connections exhausted", "listener killed"]
)
def test_f5_after_the_fault_everything_queued_gets_done(
    server: EmbeddedPostgres, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = server.start()
    migrate.apply(url)
    with psycopg.connect(url) as conn:
        source_id = source(conn)
        admit(conn, source_id, [f"t{number}" for number in range(TARGETS)])
    database = Database(url, pool_size=6, application_name="worker", wait_seconds=3.0)
    settings = PoolSettings(slots=4, lease=timedelta(seconds=6), max_attempts=20)
    pool = WorkerPool(database, Quick(), identity(), settings, tell=lambda _event: None, clock=SystemClock())
    pool.start()
    try:
        assert wait_until(lambda: _done(url) > TARGETS // 4, 60)
        if fault == "listener killed":
            assert wait_until(lambda: _done(url) == TARGETS, 60)
            time.sleep(1.5)  # asleep on LISTEN by now
        _break(fault, server, url)
        began = time.monotonic()
        with psycopg.connect(url) as conn:
            admit(conn, source_id, ["late"])

        def all_done() -> bool:
            with suppress(psycopg.OperationalError), psycopg.connect(url) as conn:
                leases.reap(conn, max_attempts=20)
            return _done(url) >= TARGETS + 1

        assert wait_until(all_done, 60)
        seconds = time.monotonic() - began
        with psycopg.connect(url) as conn:
            twice = conn.execute(
                "SELECT target_id FROM target_history WHERE outcome = 'done' GROUP BY 1 HAVING count(*) > 1"
            ).fetchall()
        assert twice == []
        with capsys.disabled():
            print(f"\nF5: {fault}: {TARGETS + 1} of {TARGETS + 1} done, {seconds:.1f} s after it")
    finally:
        pool.stop(5.0)
        database.close()

"""F2: the whole PostgreSQL tree is killed (kill -9) five times while real workers scan and writers are answered.

Nothing acknowledged may be lost, every unknown commit is resolved, and work goes on by itself (promises 1, 3 and 9).
``RESWEEP_TEST_KILLS`` sets another number of kills.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from resweep.queue import intake, requests, sources
from resweep.schema.database import Connection, Database, retryable
from resweep.schema.embedded import EmbeddedPostgres
from resweep.schema.records import Observation, TimeState
from tests.support.processes import commit, git, new_repository, token_line, wait_until
from tests.support.runtime import Running, deployment

KILLS = int(os.environ.get("RESWEEP_TEST_KILLS", "5"))
REPOSITORIES = 8
RESUME_SECONDS = 10.0
pytestmark = [pytest.mark.timeout(400 + 60 * KILLS), pytest.mark.xdist_group("killed servers")]


def kill_tree(server: EmbeddedPostgres) -> None:
    """End the server and everything it started, at once and without a word."""
    pid = server.status().pid
    assert pid is not None, "it does not run"
    postmaster = psutil.Process(pid)
    for process in (postmaster, *postmaster.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.kill()


class Writer(threading.Thread):
    """Observes one target after the other and notes whether it was told that this was written."""

    def __init__(self, database: Database, source_id: int) -> None:
        super().__init__(name="writer", daemon=True)
        self._database, self._source_id = database, source_id
        self._over = threading.Event()
        self.acknowledged: list[str] = []
        self.durable = 0  # the answer to COMMIT was lost, the rows were there
        self.repeated = 0  # the answer was lost, nothing was there
        self.fault: Exception | None = None

    def stop(self) -> None:
        """End with a known outcome of the last write."""
        self._over.set()
        self.join(90)
        assert not self.is_alive(), "the writer hangs"
        assert self.fault is None, self.fault

    def run(self) -> None:
        """Write until told to stop; an outcome that is unknown is looked up before anything else."""
        try:
            while not self._over.is_set():
                name = f"w{len(self.acknowledged)}"
                if not self._answered(name):
                    self._resolve(name)
                self.acknowledged.append(name)
        except Exception as error:  # noqa: BLE001 - told by ``stop``
            self.fault = error

    def _answered(self, name: str) -> bool:
        try:
            self._database.run(lambda conn: self._observe(conn, name), attempts=1)
        except Exception as error:
            if not retryable(error):
                raise
            return False
        return True

    def _resolve(self, name: str) -> None:
        while True:
            try:
                if self._database.run(lambda conn: self._there(conn, name), attempts=1):
                    self.durable += 1
                else:
                    self._database.run(lambda conn: self._observe(conn, name), attempts=1)
                    self.repeated += 1
            except Exception as error:
                if not retryable(error):
                    raise
                time.sleep(0.05)
            else:
                return

    def _observe(self, conn: Connection, name: str) -> None:
        seen = Observation(
            name=name,
            display_name=name,
            address=f"https://example.org/{name}",
            remote_modified_at=None,
            time_state=TimeState.MISSING,
        )
        counts = intake.observe(conn, self._source_id, [seen])
        assert counts.queued_new_count == 1, "a name is written once"

    def _there(self, conn: Connection, name: str) -> bool:
        query = "SELECT FROM target WHERE source_id = %s AND normalized_target = %s"
        return conn.execute(query, (self._source_id, name)).fetchone() is not None


@pytest.fixture
def far(tmp_path: Path) -> Path:
    folder = tmp_path / "far"
    for number in range(REPOSITORIES):
        commit(new_repository(folder / f"r{number}"), {"conf.py": token_line(number)})
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """The server of the runtime under test, as this process uses it too: with fsync, as in production."""
    (tmp_path / "own").mkdir()
    embedded = EmbeddedPostgres(tmp_path / "own" / "data")
    yield embedded
    embedded.stop()


def _scanned(running: Running) -> set[tuple[str, int]]:
    """Endings that a worker was told were accepted."""
    return {
        (str(line["target"]), int(line["claim"]))
        for line in running.lines
        if line.get("event") in {"scanned", "unchanged"} and "claim" in line
    }


def _ask(conn: Connection, query: str) -> list[tuple[Any, ...]]:
    return conn.execute(query.encode()).fetchall()


def test_f2_killed_servers_lose_nothing_and_work_goes_on_by_itself(  # noqa: PLR0915 - one story, told in order
    server: EmbeddedPostgres, tmp_path: Path, far: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = deployment(tmp_path / "own", None)
    settings = {
        "RESWEEP_DEFAULTS__INTERVAL_SECONDS": "2",
        "RESWEEP_WORKERS__LEASE_SECONDS": "8",
        "RESWEEP_LOG__LEVEL": "debug",
    }
    away: list[float] = []
    resumed: list[float] = []
    with (
        here.started("up", f"git:{far}", "--no-web", **settings) as up,
        here.started("work", **settings) as worker,
    ):
        up.wait_ready(180)
        worker.wait_ready(180)
        conninfo = server.start()
        with psycopg.connect(conninfo) as conn:
            assert _ask(conn, "SHOW fsync") == [("on",)]
        database = Database(conninfo, pool_size=2, wait_seconds=2.0, application_name="writer")
        source_id = database.run(lambda conn: sources.register(conn, name="written", kind="huggingface"))
        database.run(lambda conn: sources.pause(conn, source_id, reason="nothing to scan here"))
        writer = Writer(database, source_id)
        writer.start()
        for number in range(KILLS):
            _ask_for_scans(database, far, number)
            assert wait_until(lambda: _in_progress(conninfo) > 0, 60), "nobody claims"
            written = len(writer.acknowledged)
            assert wait_until(lambda written=written: len(writer.acknowledged) > written + 5, 30)  # type: ignore[misc]
            kill_tree(server)
            killed_at = time.monotonic()
            assert wait_until(lambda: _answers(conninfo), 60), "nobody started the server again"
            away.append(time.monotonic() - killed_at)
            back_at = time.monotonic()
            with psycopg.connect(conninfo) as conn:
                before = _accepted(conn)
                _ask_again(conn)  # whatever was done already: work waits
                if not wait_until(lambda before=before, conn=conn: _accepted(conn) > before, 60):  # type: ignore[misc]
                    raise AssertionError(f"no work after it:\n{_tail(up)}\n{_tail(worker)}")
            resumed.append(time.monotonic() - back_at)
            assert up.process.poll() is None
            assert worker.process.poll() is None
        writer.stop()
        assert wait_until(lambda: _open(conninfo) == 0, 90), "not everything was done"
        database.close()
        assert worker.stop(90) == 0
        assert up.stop(90) == 0
        told = _scanned(up) | _scanned(worker)
    with psycopg.connect(server.start()) as conn:
        names = {name for (name,) in _ask(conn, "SELECT normalized_target FROM target")}
        accepted = {
            (name, token)
            for name, token in _ask(
                conn,
                "SELECT t.normalized_target, h.lease_token FROM target_history h JOIN target t ON t.id = h.target_id"
                " WHERE h.outcome = 'done'",
            )
        }
        twice = _ask(conn, "SELECT target_id, lease_token FROM target_history GROUP BY 1, 2 HAVING count(*) > 1")
        findings = _ask(conn, "SELECT target_id, identity FROM finding GROUP BY 1, 2 HAVING count(*) > 1")
        found = _ask(conn, "SELECT count(*) FROM finding")[0][0]
    lost = set(writer.acknowledged) - names
    with capsys.disabled():
        print(
            f"\nF2: {KILLS} kills; acknowledged {len(writer.acknowledged)} observations and {len(told)} scans, lost"
            f" {len(lost)} and {len(told - accepted)}; unknown commits {writer.durable + writer.repeated}"
            f" ({writer.durable} durable, {writer.repeated} repeated), all resolved; server back after"
            f" {min(away):.2f}-{max(away):.2f} s, next accepted scan {min(resumed):.2f}-{max(resumed):.2f} s later"
        )
    assert lost == set()
    assert told
    assert told - accepted == set()
    assert (twice, findings) == ([], [])
    assert found == REPOSITORIES * (KILLS + 1)
    assert max(resumed) <= RESUME_SECONDS


def _ask_for_scans(database: Database, far: Path, number: int) -> None:
    """Push to every repository, and ask for a scan of each: so work waits whenever the server dies."""
    for each in sorted(far.iterdir()):
        commit(each, {f"more{number}.py": token_line(1000 * (number + 1) + int(each.name[1:]))})
        assert git(each, "status", "--porcelain") == ""

    def ask(conn: Connection) -> None:
        rows = conn.execute("SELECT id FROM target WHERE normalized_target NOT LIKE 'w%%'", ()).fetchall()
        assert len(rows) == REPOSITORIES
        requests.request(conn, [row[0] for row in rows])

    database.run(ask)


def _ask_again(conn: Connection) -> None:
    rows = _ask(conn, "SELECT id FROM target WHERE normalized_target NOT LIKE 'w%'")
    requests.request(conn, [row[0] for row in rows])
    conn.commit()


def _tail(running: Running) -> str:
    return "\n".join(str(line) for line in running.lines[-25:])


def _count(conn: Connection, query: str) -> int:
    conn.rollback()
    return int(_ask(conn, query)[0][0])


def _in_progress(conninfo: str) -> int:
    with psycopg.connect(conninfo) as conn:
        return _count(conn, "SELECT count(*) FROM target_hot WHERE state = 'in_progress'")


def _open(conninfo: str) -> int:
    with psycopg.connect(conninfo) as conn:
        return _count(
            conn,
            "SELECT count(*) FROM target_queue q WHERE q.normalized_target NOT LIKE 'w%' AND q.state <> 'done'",
        )


def _accepted(conn: Connection) -> int:
    return _count(conn, "SELECT count(*) FROM target_history WHERE outcome = 'done'")


def _answers(conninfo: str) -> bool:
    with suppress(psycopg.OperationalError), psycopg.connect(conninfo, connect_timeout=5):
        return True
    return False

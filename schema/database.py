"""How the database is reached: a pool, transactions, statement files, and what may be tried again."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString, TypeVar, cast

import psycopg
from psycopg import errors
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from .errors import DatabaseUnavailable

Connection = psycopg.Connection[Any]
"""A psycopg connection, whatever rows its caller asked for."""

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

# What the server or the network may say although the same transaction can succeed a moment later. An allow-list:
# errors without a SQLSTATE (NUL in text, too many parameters) repeat for ever (reliability section 6, "Python").
_RETRYABLE_CLASSES = ("08", "53")
_RETRYABLE_STATES = frozenset({"40001", "40P01", "55P03", "25006", "57P01", "57P02", "57P03", "57P04", "57P05"})
# After these the connection must not be used again: the server is going away, or has become a standby.
_CLOSING_STATES = frozenset({"25006", "57P01", "57P02", "57P03", "57P04", "57P05"})
_CLOSED_WORDS = ("connection is closed", "connection is lost", "server closed the connection", "consuming input failed")


@cache
def statement(package: str, name: str) -> LiteralString:
    """Return the text of the statement file ``name`` (without ``.sql``) of a package such as ``resweep.queue.sql``."""
    # Package data is as literal as the code beside it; psycopg takes nothing less for a query.
    text = files(package).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    return cast("LiteralString", text)  # type: ignore[redundant-cast] # mypy knows no literal strings


def retryable(error: BaseException) -> bool:
    """Tell whether the same work may succeed when it is tried again: an allow-list of SQLSTATEs, or a lost link."""
    if isinstance(error, PoolTimeout | DatabaseUnavailable):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is not None:
        return state in _RETRYABLE_STATES or state[:2] in _RETRYABLE_CLASSES
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    text = str(error).lower()
    # libpq reports a refused, unreachable or timed-out connection without a SQLSTATE.
    return isinstance(error, psycopg.errors.ConnectionTimeout) or any(
        words in text for words in (*_CLOSED_WORDS, "connection failed", "could not connect", "connection timeout")
    )


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
        options = " ".join(
            f"-c {name}={value}"
            for name, value in (
                ("default_transaction_isolation", "read\\ committed"),
                ("TimeZone", "UTC"),
                ("statement_timeout", int(statement_seconds * 1000)),
                ("lock_timeout", int(lock_seconds * 1000)),
                ("idle_in_transaction_session_timeout", int(idle_seconds * 1000)),
            )
        )
        common = {"application_name": application_name, "connect_timeout": "10", "target_session_attrs": "read-write"}
        # A transaction pooler refuses start-up options (and would not keep them): there the server's own defaults hold.
        self._pooled = make_conninfo(conninfo, **common, **({"options": options} if prepared else {}))
        self._dedicated = make_conninfo(direct_conninfo or conninfo, options="-c TimeZone=UTC", **common)
        self._threshold = 5 if prepared else None
        self._wait = wait_seconds
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self._pooled,
            kwargs={"prepare_threshold": self._threshold},
            min_size=1,
            max_size=pool_size,
            max_idle=300.0,
            timeout=wait_seconds,
            reconnect_timeout=5.0,
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
        self._pool.open()
        try:
            conn = self._pool.getconn()
        except PoolTimeout as error:
            message = f"no database connection within {self._wait:g} s (server down, or the pool is used up)"
            raise DatabaseUnavailable(message) from error
        try:
            with conn:  # commits or rolls back
                yield conn
        except psycopg.Error as error:
            if error.sqlstate in _CLOSING_STATES:
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

        A lost answer to COMMIT leaves the outcome unknown. Work that is not safe to repeat passes ``confirm``: before
        every further attempt it is asked, in a transaction of its own, whether the earlier attempt took effect; a
        result that is not ``None`` is returned instead of running the work again.
        """
        unknown = False
        for attempt in Retrying(
            stop=stop_after_attempt(attempts),
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            retry=retry_if_exception(retryable),
            reraise=True,
        ):
            with attempt:
                if unknown and confirm is not None:
                    with self.connection() as conn:
                        earlier = confirm(conn)
                    if earlier is not None:
                        return earlier
                unknown = True
                with self.connection() as conn:
                    return work(conn)
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

    def _discard_idle(self) -> None:
        """After a shutdown of the server every idle connection is dead: replace them now, not one by one."""
        try:
            self._pool.check()
        except (psycopg.Error, PoolTimeout) as error:
            _LOG.debug("pool check after a server shutdown failed: %s", type(error).__name__)


def first_line(error: BaseException) -> str:
    """The first line of an error's text: libpq repeats itself on the following ones."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def pooled_by_transaction(conninfo: str) -> bool:
    """Tell whether a transaction pooler stands between us and the server (D45): a session setting does not stay.

    Two transactions of one client connection are served by backends whose numbers differ, or a setting made in the
    first is unknown in the second.
    """
    with (
        psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as conn,
        psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as other,
    ):
        try:
            conn.execute("SET lock_timeout = '4321ms'")
            seen: set[tuple[Any, ...]] = set()
            for _ in range(3):
                other.execute("BEGIN")  # keeps one backend busy, so that the pooler must hand out another
                row = conn.execute("SELECT pg_backend_pid(), current_setting('lock_timeout')").fetchone()
                seen.add(tuple(row or ()))
                other.execute("ROLLBACK")
                other.execute("SELECT 1")
            settings = {row[1] for row in seen if row}
            held = conn.info.backend_pid
            real = {row[0] for row in seen if row}
        except errors.ProtocolViolation:
            return True
        return len(seen) > 1 or settings != {"4321ms"} or (held != 0 and real != {held})

"""How the database is reached: what may be tried again, sessions, lost answers, restarts, poolers (D45, promise 9)."""

import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import PoolTimeout

from resweep.schema.database import Connection, Database, pooled_by_transaction, retryable
from resweep.schema.embedded import EmbeddedPostgres
from resweep.schema.errors import DatabaseUnavailable, UsageFault
from tests.support.processes import wait_until
from tests.support.proxy import Fault, proxied
from tests.support.require import need

COMMIT = b"COMMIT\x00"  # not the READ COMMITTED of a BEGIN
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


# --- what may be tried again ---


@pytest.mark.parametrize(
    "state",
    [
        "08000",
        "08006",
        "53100",
        "53200",
        "53300",
        "40001",
        "40P01",
        "55P03",
        "25006",
        "57P01",
        "57P02",
        "57P03",
        "57P05",
    ],
)
def test_what_passes_by_itself_is_tried_again(state: str) -> None:
    assert retryable(errors.lookup(state)("said by the server"))


@pytest.mark.parametrize(
    "state",
    ["22021", "22P02", "23505", "23514", "25001", "28P01", "3D000", "42601", "42P01", "54000", "57014", "XX000"],
)
def test_what_would_fail_again_is_not(state: str) -> None:
    assert not retryable(errors.lookup(state)("said by the server"))


def test_errors_without_a_state_are_tried_again_only_when_the_link_was_lost(
    conn: Connection, database_url: str
) -> None:
    assert retryable(PoolTimeout())
    assert retryable(DatabaseUnavailable("away"))
    assert not retryable(UsageFault("no such thing"))
    assert not retryable(ValueError("connection is closed"))
    with pytest.raises(psycopg.Error) as nul:
        conn.execute("SELECT %s", ["a\x00b"])
    assert not retryable(nul.value)
    with pytest.raises(psycopg.OperationalError) as refused, socket.create_server(("127.0.0.1", 0)) as taken:  # noqa: PT012 - the port must be free again
        port = taken.getsockname()[1]
        taken.close()
        psycopg.connect(host="127.0.0.1", port=port, connect_timeout=5)
    assert retryable(refused.value)
    other = psycopg.connect(database_url)
    other.close()
    with pytest.raises(psycopg.OperationalError) as closed:
        other.execute("SELECT 1")
    assert retryable(closed.value)


# --- sessions ---


def _setting(conn: Connection, name: str) -> str:
    found = conn.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert found is not None
    return str(found[0])


def test_sessions_are_read_committed_in_utc_and_bounded(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as admin:  # what a server may have been set to
        name = admin.info.dbname
        admin.execute(f"ALTER DATABASE \"{name}\" SET timezone = 'America/Caracas'".encode())
        admin.execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'serializable'".encode())
    database = Database(database_url, statement_seconds=7, lock_seconds=3, idle_seconds=11)
    try:
        with database.connection() as conn:
            assert _setting(conn, "transaction_isolation") == "read committed"
            assert _setting(conn, "TimeZone") == "UTC"
            assert _setting(conn, "statement_timeout") == "7s"
            assert _setting(conn, "lock_timeout") == "3s"
            assert _setting(conn, "idle_in_transaction_session_timeout") == "11s"
        with database.direct() as direct:
            assert _setting(direct, "TimeZone") == "UTC"
            assert direct.autocommit
    finally:
        database.close()


def test_a_link_that_swallows_everything_is_given_up_after_seconds(database_url: str) -> None:
    """A cut without a word (a firewall that forgot us) must not hold a thread for the system's quarter of an hour."""
    with proxied(database_url) as proxy:
        database = Database(proxy.url)
        try:
            with database.connection() as pooled, database.direct() as direct:
                for conn in (pooled, direct):
                    with socket.socket(fileno=os.dup(conn.fileno())) as link:
                        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                        assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 30
                        user_timeout = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 4)
                        assert 0 < struct.unpack("i", user_timeout)[0] <= 30_000
        finally:
            database.close()


def test_a_failed_transaction_leaves_nothing_and_its_connection_is_used_again(database: Database) -> None:
    def fail(conn: Connection) -> None:
        conn.execute("CREATE TABLE half (n int)")
        conn.execute("SELECT 1 / 0")

    with pytest.raises(errors.DivisionByZero):
        database.run(fail)
    with database.connection() as conn:
        assert conn.execute("SELECT to_regclass('half')").fetchone() == (None,)


def test_work_that_passes_by_itself_is_run_again_and_other_work_is_not(database: Database) -> None:
    tries = 0

    def work(conn: Connection) -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise errors.DeadlockDetected
        assert conn.execute("SELECT 1").fetchone() == (1,)
        return tries

    assert database.run(work) == 3

    def wrong(_conn: Connection) -> None:
        nonlocal tries
        tries += 1
        raise errors.UniqueViolation

    with pytest.raises(errors.UniqueViolation):
        database.run(wrong)
    assert tries == 4


def test_a_server_that_became_a_standby_is_left(database_url: str) -> None:
    """SQLSTATE 25006: the link works, but whoever answers it can't write any more; the pool must connect anew."""
    database = Database(database_url, pool_size=1)
    with database.connection() as conn:
        first = conn.info.backend_pid
    with pytest.raises(errors.ReadOnlySqlTransaction) as caught, database.connection() as conn:  # noqa: PT012 -- the second statement is what fails
        assert conn.info.backend_pid == first
        conn.execute("SET TRANSACTION READ ONLY")
        conn.execute("CREATE TABLE refused (n int)")
    assert retryable(caught.value)
    assert conn.closed
    with database.connection() as conn:
        assert conn.info.backend_pid != first
    database.close()


# --- the answer to COMMIT is lost ---


@pytest.fixture
def ledger(database_url: str) -> str:
    with psycopg.connect(database_url) as conn:
        conn.execute("CREATE TABLE paid (what text)")
    return database_url


def _pay(conn: Connection) -> str:
    conn.execute("INSERT INTO paid VALUES ('once')")
    return "paid"


def _paid(conn: Connection) -> str | None:
    return "found paid" if conn.execute("SELECT FROM paid WHERE what = 'once'").fetchone() is not None else None


def _count(url: str) -> int:
    with psycopg.connect(url) as conn:
        found = conn.execute("SELECT count(*) FROM paid").fetchone()
    assert found is not None
    return int(found[0])


def test_work_whose_commit_was_done_but_not_answered_is_found_and_not_repeated(ledger: str) -> None:
    with proxied(ledger) as proxy:
        database = Database(proxy.url)
        proxy.arm(COMMIT, Fault.LOSE_ANSWER)
        assert database.run(_pay, confirm=_paid) == "found paid"
        database.close()
    assert (proxy.faults, _count(ledger)) == (1, 1)


def test_without_a_way_to_ask_it_is_repeated(ledger: str) -> None:
    with proxied(ledger) as proxy:
        database = Database(proxy.url)
        proxy.arm(COMMIT, Fault.LOSE_ANSWER)
        assert database.run(_pay) == "paid"
        database.close()
    assert (proxy.faults, _count(ledger)) == (1, 2)


def test_work_whose_commit_never_arrived_is_done_once(ledger: str) -> None:
    with proxied(ledger) as proxy:
        database = Database(proxy.url)
        proxy.arm(COMMIT, Fault.LOSE_STATEMENT)
        assert database.run(_pay, confirm=_paid) == "paid"
        database.close()
    assert (proxy.faults, _count(ledger)) == (1, 1)


def test_every_connection_is_cut_and_the_next_work_succeeds(database_url: str) -> None:
    with proxied(database_url) as proxy:
        database = Database(proxy.url, pool_size=8)
        _fill(database, 8)
        proxy.cut()
        assert database.run(lambda conn: conn.execute("SELECT 41 + 1").fetchone()) == (42,)
        database.close()


# --- the server goes and comes back ---


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server that may be killed."""
    server = EmbeddedPostgres(tmp_path, settings=_FAST)
    yield server
    server.stop()


def _fill(database: Database, count: int) -> None:
    """Open ``count`` connections of the pool at once, and give them all back."""
    with suppress(_Enough):
        _nested(database, count)


class _Enough(Exception):
    pass


def _nested(database: Database, count: int) -> None:
    with database.connection() as conn:
        conn.execute("SELECT 1")
        if count > 1:
            _nested(database, count - 1)


def _end(server: EmbeddedPostgres, number: signal.Signals) -> None:
    pid = server.status().pid
    assert pid is not None
    postmaster = psutil.Process(pid)
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes if number is signal.SIGKILL else [postmaster]:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
    assert wait_until(lambda: server.status().state == "stopped", 30)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["restart", "kill -9"])
def test_promise_9_the_pool_heals_at_the_first_work_after_a_restart(
    own_server: EmbeddedPostgres, number: signal.Signals
) -> None:
    database = Database(own_server.start(), pool_size=8)
    try:
        _fill(database, 8)
        _end(own_server, number)
        own_server.start()
        # All eight connections in the pool are dead: two attempts must do, not one for each of them.
        assert database.run(lambda conn: conn.execute("SELECT 41 + 1").fetchone(), attempts=2) == (42,)
        _fill(database, 8)
    finally:
        database.close()


def test_while_the_server_is_away_callers_are_told_in_time_and_then_served(own_server: EmbeddedPostgres) -> None:
    database = Database(own_server.start(), wait_seconds=1.0)
    try:
        _fill(database, 2)
        _end(own_server, signal.SIGINT)
        for _ in range(3):
            with pytest.raises((DatabaseUnavailable, psycopg.OperationalError)) as caught:
                database.run(lambda conn: conn.execute("SELECT 1"), attempts=1)
            assert retryable(caught.value)
        with pytest.raises(DatabaseUnavailable, match="cannot be reached"):
            database.direct()
        own_server.start()
        began = time.monotonic()
        assert database.run(lambda conn: conn.execute("SELECT 41 + 1").fetchone(), attempts=10) == (42,)
        assert time.monotonic() - began < 10
    finally:
        database.close()


# --- poolers ---


@contextmanager
def _pgbouncer(conninfo: str, *, mode: str, size: int) -> Generator[str, None, None]:
    """A real pgbouncer in front of ``conninfo``; yields the address by way of it."""
    program = need("pgbouncer")
    parts = conninfo_to_dict(conninfo)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with proxied(conninfo) as proxy, tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # it refuses to be root
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n{parts['dbname']} = host=127.0.0.1 port={proxy.port} user={parts['user']}"
            f" password={parts.get('password', '')}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = {mode}\ndefault_pool_size = {size}\nignore_startup_parameters = extra_float_digits,options\n"
        )
        as_user = ["-u", "nobody"] if os.geteuid() == 0 else []
        log = (Path(folder) / "log").open("wb")
        process = subprocess.Popen([program, *as_user, str(settings)], stdout=log, stderr=log)
        url = make_conninfo(conninfo, host="127.0.0.1", port=port, sslmode="disable")
        try:
            assert wait_until(lambda: _answers(url), 20), (Path(folder) / "log").read_text()
            yield url
        finally:
            process.kill()
            process.wait(10)
            log.close()


def _answers(url: str) -> bool:
    with suppress(psycopg.OperationalError), psycopg.connect(url, connect_timeout=5):
        return True
    return False


@pytest.mark.timeout(60)
@pytest.mark.parametrize("size", [1, 2, 10])
def test_d45_a_transaction_pooler_is_noticed_whatever_its_size(database_url: str, size: int) -> None:
    with _pgbouncer(database_url, mode="transaction", size=size) as url:
        assert pooled_by_transaction(url)


def test_d45_a_session_pooler_and_none_are_not_taken_for_one(database_url: str) -> None:
    assert not pooled_by_transaction(database_url)
    with _pgbouncer(database_url, mode="session", size=10) as url:
        assert not pooled_by_transaction(url)


def test_d45_behind_a_transaction_pooler_work_goes_on_without_prepared_statements(database_url: str) -> None:
    with _pgbouncer(database_url, mode="transaction", size=2) as url:
        database = Database(url, direct_conninfo=database_url, prepared=False)
        try:
            for _ in range(12):  # more than the threshold from which psycopg prepares
                assert database.run(lambda conn: conn.execute("SELECT %s + 1", [41]).fetchone()) == (42,)
            with database.direct() as direct:
                assert direct.execute("SELECT pg_backend_pid()").fetchone() == (direct.info.backend_pid,)
        finally:
            database.close()

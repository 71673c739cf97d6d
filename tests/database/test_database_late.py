"""A COMMIT that arrives late, and a link that answers nothing: neither may do work twice or hold a thread (row 43)."""

import threading
import time

import psycopg
import pytest

from resweep.schema.database import Connection, Database, deadline, retryable
from resweep.schema.errors import DatabaseUnavailable
from tests.support.processes import wait_until
from tests.support.proxy import Fault, proxied


@pytest.fixture
def paid(database_url: str) -> str:
    """A database with a table in which double work shows."""
    with psycopg.connect(database_url) as conn:
        conn.execute("CREATE TABLE paid (what text)")
    return database_url


def _rows(url: str) -> int:
    with psycopg.connect(url) as conn:
        return len(conn.execute("SELECT FROM paid").fetchall())


def _sessions(url: str, name: str) -> int:
    with psycopg.connect(url) as conn:
        return len(conn.execute("SELECT FROM pg_stat_activity WHERE application_name = %s", (name,)).fetchall())


@pytest.mark.parametrize("ask", [True, False], ids=["with confirm", "without"])
def test_a_commit_on_its_way_can_not_arrive_after_the_work_was_done_again(paid: str, *, ask: bool) -> None:
    """The network holds the COMMIT back; we give up and do the work again; then the network lets the COMMIT go."""
    with proxied(paid) as proxy:
        database = Database(proxy.url)
        proxy.arm(b"COMMIT\x00", Fault.HOLD)
        bounds: list[threading.Timer] = []

        def pay(conn: Connection) -> str:
            conn.execute("INSERT INTO paid VALUES ('once')")
            if not bounds:  # the caller's patience: it lasts over the COMMIT that follows
                bounds.append(threading.Timer(0.5, _give_up, (conn,)))
                bounds[0].start()
            return "paid"

        def confirm(conn: Connection) -> str | None:
            return "found" if conn.execute("SELECT FROM paid").fetchone() is not None else None

        assert database.run(pay, confirm=confirm if ask else None) == "paid"
        proxy.release()
        time.sleep(0.3)
        database.close()
        assert (proxy.faults, _rows(paid)) == (1, 1)


def _give_up(conn: Connection) -> None:
    with deadline(conn, 0.0):
        time.sleep(0.1)


def test_a_frozen_link_ends_with_the_deadline_and_may_be_tried_again(database_url: str) -> None:
    with proxied(database_url) as proxy, psycopg.connect(proxy.url, autocommit=True) as conn:
        conn.execute("SELECT 1")
        proxy.freeze()
        began = time.monotonic()
        with pytest.raises(psycopg.OperationalError) as caught, deadline(conn, 0.5):
            conn.execute("SELECT 2")
        assert 0.4 < time.monotonic() - began < 5
        assert retryable(caught.value)
        assert conn.closed


def test_a_deadline_that_was_kept_changes_nothing(conn: Connection) -> None:
    with deadline(conn, 0.2):
        conn.execute("SELECT 1")
    time.sleep(0.4)
    assert conn.execute("SELECT 2").fetchone() == (2,)


def test_why_no_connection_is_to_be_had_is_said(database_url: str) -> None:
    wrong = Database(f"{database_url} user=nobody_at_all", wait_seconds=20.0)
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable, match=r"nobody_at_all") as caught:
        wrong.run(lambda conn: conn.execute("SELECT 1"))
    assert time.monotonic() - began < 10, "a refusal that stays is not waited for"
    assert not retryable(caught.value)
    wrong.close()


def test_a_pool_that_is_used_up_says_so(database_url: str) -> None:
    small = Database(database_url, pool_size=1, wait_seconds=0.5)
    with (
        small.connection(),
        pytest.raises(DatabaseUnavailable, match=r"within 0.5 s: all connections of the pool"),
        small.connection(),
    ):
        pass
    small.close()


def test_what_the_connection_string_says_itself_is_kept(database_url: str) -> None:
    own = Database(f"{database_url} options='-c work_mem=5MB' keepalives_idle=77", application_name="resweep own")
    with own.connection() as conn:
        assert conn.execute("SELECT current_setting('work_mem'), current_setting('lock_timeout')").fetchone() == (
            "5MB",
            "10s",
        )
        assert "keepalives_idle=77" in own.conninfo
    own.close()
    assert wait_until(lambda: _sessions(database_url, "resweep own") == 0, 5)

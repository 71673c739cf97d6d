"""Wake-ups: one NOTIFY a batch, and only when somebody sleeps; a slow poll always runs beside it."""

from datetime import datetime, timedelta
from uuid import UUID

from .statements import Conn, change, fetch_one

CHANNEL = "resweep_work"


def announce(conn: Conn) -> bool:
    """Tell sleeping workers, when this transaction commits, that work was admitted. False when nobody sleeps.

    PostgreSQL folds equal notifications of one transaction into one.
    """
    return fetch_one(conn, "announce", {"channel": CHANNEL}) is not None


def fall_asleep(conn: Conn, worker: UUID, longest: timedelta, *, now: datetime | None = None) -> bool:
    """Say that this worker is going to sleep for at most ``longest``. Commit, claim once more, then ``sleep``.

    False when the worker was never registered: then nothing will wake it but its poll.
    """
    return change(conn, "worker_sleep", {"uuid": worker, "longest": longest, "now": now}) == 1


def wake_up(conn: Conn, worker: UUID) -> None:
    """Say that this worker no longer sleeps. Writes nothing when it did not."""
    change(conn, "worker_wake", {"uuid": worker})


def listen(direct: Conn) -> None:
    """Start listening on a dedicated connection in autocommit mode (never one behind a transaction pooler)."""
    direct.execute("LISTEN resweep_work")


def sleep(direct: Conn, longest: timedelta) -> bool:
    """Wait for a wake-up on a listening connection; True when one came, False after ``longest``.

    A lost connection raises ``psycopg.OperationalError``: reconnect with a pause, and poll meanwhile.
    """
    return any(True for _ in direct.notifies(timeout=longest / timedelta(seconds=1), stop_after=1))

"""How long what is over is kept: rows of cycles, passes and workers, removed a bounded number at once."""

from datetime import datetime, timedelta

from ..schema.database import Connection
from .statements import change

_WORKERS_KEPT = timedelta(days=7)


def purge_cycles(conn: Connection, *, older_than: timedelta, limit: int = 10_000, now: datetime | None = None) -> int:
    """Remove finished discovery cycles and passes older than ``older_than``; gives how many."""
    values = {"older_than": older_than, "limit": limit, "now": now}
    return change(conn, "cycles_purge", values) + change(conn, "runs_purge", values)


def forget_workers(conn: Connection, *, older_than: timedelta = _WORKERS_KEPT, now: datetime | None = None) -> int:
    """Forget worker processes not seen for ``older_than`` that hold nothing; gives how many."""
    return change(conn, "workers_purge", {"older_than": older_than, "now": now})

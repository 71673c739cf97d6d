"""Retention: what is over and older than it is kept is removed, a bounded number of rows at once."""

from collections.abc import Callable
from datetime import timedelta

from ..ledger import audit, retention
from ..queue import admin, cycles
from ..queue import retention as queue_retention
from ..schema.database import Connection, Database
from .config_model import RetentionSettings
from .scanners.checkout import CheckoutCache

_BATCH = 10_000
_MOST_BATCHES = 100

Purge = Callable[[Connection, timedelta], int]


def housekeep(database: Database, cache: CheckoutCache, keep: RetentionSettings, trigger: str) -> bool:
    """One pass over everything that is kept for a time, with its row in ``runs``; also trims the checkout cache."""
    run_id = database.run(lambda conn: cycles.begin_run(conn, "housekeeping", trigger=trigger))
    counts: dict[str, int] = {}
    try:
        counts = {
            "history": _purge(database, keep.history_days, _history),
            "cycles": _purge(database, keep.cycles_days, _cycles),
            "audit": _purge(database, keep.audit_days, _audit),
            "retired": _purge(database, keep.retired_days, _retired),
            "workers": database.run(retention.forget_workers),
            "cache_bytes": cache.trim(),
        }
    except Exception as error:
        code, message = type(error).__name__, str(error)
        database.run(
            lambda conn: cycles.finish_run(conn, run_id, status="failed", error_code=code, error_message=message)
        )
        raise
    database.run(lambda conn: cycles.finish_run(conn, run_id, status="success", counts=counts))
    return True


def _history(conn: Connection, older_than: timedelta) -> int:
    return admin.purge_history(conn, older_than=older_than, limit=_BATCH)


def _cycles(conn: Connection, older_than: timedelta) -> int:
    return retention.purge_cycles(conn, older_than=older_than, limit=_BATCH)


def _audit(conn: Connection, older_than: timedelta) -> int:
    return audit.purge(conn, older_than=older_than, limit=_BATCH)


def _retired(conn: Connection, older_than: timedelta) -> int:
    return queue_retention.forget_retired(conn, older_than=older_than, limit=_BATCH)


def _purge(database: Database, days: int | None, purge: Purge) -> int:
    """Purge batch by batch; None days: kept for ever."""
    if days is None:
        return 0
    removed = 0
    for _ in range(_MOST_BATCHES):
        batch = database.run(lambda conn: purge(conn, timedelta(days=days)))
        removed += batch
        if batch < _BATCH:
            break
    return removed

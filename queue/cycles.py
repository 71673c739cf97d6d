"""Cycles of discovery: their row, their lock, their fence; and the rows of every other pass.

A cycle's session advisory lock is held on a dedicated connection for the cycle's whole life. Nothing here tries a lock
to find out whether it is held: that is read from ``pg_locks`` (rulings.md, 8).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..schema.errors import CycleFenced
from ..schema.records import ObserveCounts
from .statements import Conn, change, fetch, fetch_one

CYCLE_LOCKS = 732_301  # advisory lock namespace: (namespace, source id)
RUN_LOCKS = 732_303  # advisory lock namespace of other passes: (namespace, hash of the kind)
GRACE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSoFar:
    """A running cycle's counts, read under its row's lock: what is left of a cap is computed from these."""

    queued_updated_count: int
    queued_reconcile_count: int


def hold(direct: Conn, source_id: int) -> bool:
    """Try to become the one who runs cycles of this source; the lock lives until ``let_go`` or the connection's end."""
    row = fetch_one(direct, "cycle_lock", {"namespace": CYCLE_LOCKS, "id": source_id})
    return bool(row and row[0])


def let_go(direct: Conn, source_id: int) -> bool:
    """Give the lock back. False says that this connection did not hold it: a fault in the caller."""
    row = fetch_one(direct, "cycle_unlock", {"namespace": CYCLE_LOCKS, "id": source_id})
    return bool(row and row[0])


def begin(
    conn: Conn,
    source_id: int,
    *,
    trigger: str = "schedule",
    target_id: int | None = None,
    settings_fingerprint: bytes | None = None,
    now: datetime | None = None,
) -> int:
    """Open a cycle's row; call while its lock is held (``hold``). Returns the cycle's id.

    A row of the same source still said to run is failed at once: whoever wrote it cannot hold the lock that we hold.
    """
    change(conn, "cycle_supersede", {"source_id": source_id, "now": now})
    row = fetch_one(
        conn,
        "cycle_begin",
        {
            "source_id": source_id,
            "trigger": trigger,
            "target_id": target_id,
            "fingerprint": settings_fingerprint,
            "now": now,
        },
    )
    assert row is not None  # noqa: S101 - INSERT … RETURNING
    return int(row[0])


def fence(conn: Conn, cycle_id: int) -> CycleSoFar:
    """Lock the cycle's row and prove that it still runs; raises ``CycleFenced`` otherwise. First act of every step."""
    row = fetch_one(conn, "cycle_fence", {"id": cycle_id})
    if row is None:
        message = f"the cycle {cycle_id} is no longer running: another process ended it; nothing was written"
        raise CycleFenced(message)
    return CycleSoFar(queued_updated_count=row[0], queued_reconcile_count=row[1])


def add(  # noqa: PLR0913 - one argument a counter
    conn: Conn,
    cycle_id: int,
    counts: ObserveCounts | None = None,
    *,
    pages: int = 0,
    requests: int = 0,
    not_modified: int = 0,
    queued_updated: int = 0,
    queued_reconcile: int = 0,
    retired: int = 0,
    invalid: int = 0,
) -> None:
    """Add a step's counts to the running cycle, or raise ``CycleFenced``. ``invalid``: times refused before."""
    counts = counts if counts is not None else ObserveCounts()
    done = change(
        conn,
        "cycle_add",
        {
            "id": cycle_id,
            "pages": pages,
            "requests": requests,
            "not_modified": not_modified,
            "fetched": counts.fetched_count,
            "known": counts.known_count,
            "queued_new": counts.queued_new_count,
            "queued_updated": queued_updated,
            "queued_reconcile": queued_reconcile,
            "missing": counts.missing_timestamp_count,
            "invalid": counts.invalid_timestamp_count + invalid,
            "older": counts.older_timestamp_count,
            "moved": counts.moved_count,
            "renamed": counts.renamed_count,
            "retired": retired,
        },
    )
    if not done:
        fence(conn, cycle_id)


def finish(  # noqa: PLR0913 - one argument a column
    conn: Conn,
    cycle_id: int,
    *,
    status: str,
    changed_waiting: int = 0,
    complete_listing: bool = False,
    error_code: str | None = None,
    error_message: str | None = None,
    now: datetime | None = None,
) -> bool:
    """Close a running cycle: ``success``, ``partial``, ``failed`` or ``skipped``. False when it no longer ran."""
    return (
        change(
            conn,
            "cycle_finish",
            {
                "id": cycle_id,
                "status": status,
                "changed_waiting": changed_waiting,
                "complete_listing": complete_listing,
                "error_code": error_code,
                "error_message": error_message,
                "now": now,
            },
        )
        == 1
    )


def reap_abandoned(conn: Conn, *, grace: timedelta = GRACE, now: datetime | None = None) -> list[int]:
    """Mark cycles ``failed`` that are older than ``grace`` and whose lock nobody holds; gives their ids."""
    values = {"namespace": CYCLE_LOCKS, "grace": grace, "now": now}
    return [row[0] for row in fetch(conn, "cycle_reap", values)]


def backlog(conn: Conn, source_id: int, *, now: datetime | None = None) -> int:
    """Targets claimable now or in progress; waiting, deferred and reserved ones do not count (queue.md, "Cycles")."""
    row = fetch_one(conn, "backlog", {"source_id": source_id, "now": now})
    return 0 if row is None else int(row[0])


def begin_run(
    conn: Conn,
    kind: str,
    *,
    trigger: str = "schedule",
    tenant: str = "default",
    scope: str | None = None,
    now: datetime | None = None,
) -> int:
    """Open the row of a pass that is not discovery; returns its id."""
    row = fetch_one(conn, "run_begin", {"kind": kind, "trigger": trigger, "tenant": tenant, "scope": scope, "now": now})
    assert row is not None  # noqa: S101 - INSERT … RETURNING
    return int(row[0])


def finish_run(
    conn: Conn,
    run_id: int,
    *,
    status: str,
    counts: Mapping[str, int] | None = None,
    error_code: str | None = None,
    error_message: str | None = None,
    now: datetime | None = None,
) -> bool:
    """Close a running pass. False when it no longer ran."""
    values: dict[str, Any] = {
        "id": run_id,
        "status": status,
        "counts": json.dumps(dict(counts or {})),
        "error_code": error_code,
        "error_message": error_message,
        "now": now,
    }
    return change(conn, "run_finish", values) == 1

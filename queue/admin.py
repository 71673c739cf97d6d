"""What operators do to targets: retry, defer, hold, let go, retire, settle. Each gives the ids it changed.

``requeue`` is a request (``requests.request``): it takes names or filters, never state alone (rulings.md, 22).
Who asked, and why, is the caller's audit row.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from ..schema.records import State
from .statements import Conn, change, fetch, fetch_one
from .wakeups import announce


def retry(conn: Conn, target_ids: Sequence[int], *, now: datetime | None = None) -> list[int]:
    """Start ``failed`` targets again with all their attempts; others are left alone."""
    changed = [row[0] for row in fetch(conn, "retry", {"ids": list(target_ids), "now": now})]
    if changed:
        announce(conn)
    return sorted(changed)


def defer(
    conn: Conn,
    target_ids: Sequence[int],
    *,
    reason: str,
    delay: timedelta = timedelta(0),
    until: datetime | None = None,
    now: datetime | None = None,
) -> list[int]:
    """Put waiting targets (``pending``, ``deferred``) off by ``delay`` or until a time; leases are not touched."""
    values = {"ids": list(target_ids), "reason": reason, "delay": delay, "until": until, "now": now}
    return sorted(row[0] for row in fetch(conn, "defer_waiting", values))


def reserve(
    conn: Conn,
    target_ids: Sequence[int],
    *,
    by: str,
    period: timedelta = timedelta(hours=1),
    now: datetime | None = None,
) -> list[int]:
    """Hold targets for ``period``: claims and requeues stay away. Leased, retired and others' targets are left out."""
    values = {"ids": list(target_ids), "by": by, "period": period, "now": now}
    return sorted(row[0] for row in fetch(conn, "reserve", values))


def unreserve(conn: Conn, target_ids: Sequence[int], *, by: str | None = None) -> list[int]:
    """Let held targets go; with ``by`` only those of one holder."""
    changed = [row[0] for row in fetch(conn, "unreserve", {"ids": list(target_ids), "by": by})]
    if changed:
        announce(conn)
    return sorted(changed)


def retire(conn: Conn, target_ids: Sequence[int], *, reason: str, now: datetime | None = None) -> dict[int, State]:
    """Retire targets; the answer says ``retired``, or ``in_progress`` for those retired when their claim ends.

    The row and its findings are kept. Seen again in a listing, a target comes back.
    """
    rows = fetch(conn, "retire", {"ids": list(target_ids), "reason": reason, "now": now})
    return {row[0]: State(row[1]) for row in rows}


def unresolve(conn: Conn, target_ids: Sequence[int], *, reason: str, now: datetime | None = None) -> list[int]:
    """Hold targets whose identity is not settled for the resolver; a lease on them is lost."""
    return sorted(row[0] for row in fetch(conn, "unresolve", {"ids": list(target_ids), "reason": reason, "now": now}))


def resolve(conn: Conn, target_id: int, *, name: str | None = None, now: datetime | None = None) -> State | None:
    """Settle an ``unresolved`` target, under ``name`` (folded by the caller) when one is given.

    ``None`` when it was not unresolved. A name that another target holds raises ``psycopg.errors.UniqueViolation``.
    """
    row = fetch_one(conn, "resolve", {"id": target_id, "name": name, "now": now})
    if row is None:
        return None
    state = State(row[0])
    if state is State.PENDING:
        announce(conn)
    return state


def set_priority(conn: Conn, target_ids: Sequence[int], *, priority: int) -> list[int]:
    """Set the operators' priority: 0 (first), 1 (normal) or 2."""
    if priority not in {0, 1, 2}:
        message = f"priority is 0, 1 or 2, not {priority}"
        raise ValueError(message)
    return sorted(row[0] for row in fetch(conn, "set_priority", {"ids": list(target_ids), "priority": priority}))


def purge_history(conn: Conn, *, older_than: timedelta, limit: int = 10_000, now: datetime | None = None) -> int:
    """Remove history rows older than ``older_than``, at most ``limit`` at once; gives how many."""
    return change(conn, "history_purge", {"older_than": older_than, "limit": limit, "now": now})

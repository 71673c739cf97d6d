"""Who leads: one process runs the passes of configured sources, known by a session lock on a connection of its own."""

from dataclasses import dataclass
from datetime import datetime

from ..schema.database import Connection
from .statements import fetch, fetch_one

AUTHORITY_LOCKS = 732_304  # advisory lock namespace; key 1 = the passes
_PASSES = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who holds the lead. ``name`` is its connection's application name: host and process."""

    backend: int
    name: str
    address: str | None
    since: datetime


def try_lead(direct: Connection) -> bool:
    """Try to take the lead; it lasts as long as this connection. True when it is ours (each call adds one hold)."""
    row = fetch_one(direct, "lead", {"namespace": AUTHORITY_LOCKS, "key": _PASSES})
    return bool(row and row[0])


def leader(conn: Connection) -> Leader | None:
    """Who leads now, or ``None``."""
    row = fetch_one(conn, "leader", {"namespace": AUTHORITY_LOCKS, "key": _PASSES})
    return None if row is None else Leader(backend=row[0], name=row[1], address=row[2], since=row[3])


def lock_holders(conn: Connection) -> list[tuple[int, int, int, str, float]]:
    """Our advisory locks: namespace, key, backend, application name, seconds since that backend started."""
    return [(row[0], row[1], row[2], row[3], row[4].total_seconds()) for row in fetch(conn, "lock_holders", {})]

"""Facts of a deployment that must stay the same: the first writer decides, later ones compare."""

from dataclasses import dataclass
from datetime import datetime

from ..schema.database import Connection
from .statements import change, fetch_one

FINDINGS_KEY = "findings_key_check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What was written, when, and by whom."""

    value: bytes
    written_at: datetime
    written_by: str


def settle(conn: Connection, name: str, value: bytes, *, by: str = "") -> Fact:
    """Write a fact unless there is one; returns the one that holds. The caller compares."""
    change(conn, "fact_write", {"name": name, "value": value, "by": by})
    fact = read(conn, name)
    assert fact is not None  # noqa: S101 - written a statement ago, and facts are never removed
    return fact


def read(conn: Connection, name: str) -> Fact | None:
    """One fact, or ``None``."""
    row = fetch_one(conn, "fact_read", {"name": name})
    return None if row is None else Fact(value=bytes(row[0]), written_at=row[1], written_by=row[2])

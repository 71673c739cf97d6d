"""Audit: who did what to how many rows, written in the transaction of the act itself."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..schema.database import Connection
from ..schema.text import store_text
from .statements import change, fetch

_TEXT_LIMIT = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One act."""

    id: int
    at: datetime
    who: str
    act: str
    object: str
    changed: int
    detail: Mapping[str, Any]


def note(
    conn: Connection, *, who: str, act: str, object_: str, changed: int = 0, detail: Mapping[str, object] | None = None
) -> None:
    """Record an act; texts are cleaned for storage here."""
    values = {
        "who": store_text(who, _TEXT_LIMIT),
        "act": act,
        "object": store_text(object_, _TEXT_LIMIT),
        "changed": changed,
        "detail": store_text(json.dumps(dict(detail or {}), default=str)),
    }
    change(conn, "audit_write", values)


def acts(conn: Connection, *, limit: int = 100, before: int | None = None) -> list[Act]:
    """Acts, the newest first; ``before`` an id for the next page."""
    return [
        Act(id=row[0], at=row[1], who=row[2], act=row[3], object=row[4], changed=row[5], detail=row[6])
        for row in fetch(conn, "audit_list", {"limit": limit, "before": before})
    ]


def purge(conn: Connection, *, older_than: timedelta, limit: int = 10_000, now: datetime | None = None) -> int:
    """Remove acts older than ``older_than``, at most ``limit`` at once; gives how many."""
    return change(conn, "audit_purge", {"older_than": older_than, "limit": limit, "now": now})

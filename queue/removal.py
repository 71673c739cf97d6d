"""Removal, by capability: two complete listings, or a per-id "gone" twice and hours apart (queue.md, "Cycles").

A failed or partial listing, a passing error or a cap that was hit must never reach this room.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from .statements import Conn, change, fetch, together

GONE_APART = timedelta(hours=6)


def begin(direct: Conn) -> None:
    """Start remembering who is seen in a complete walk; on the cycle's dedicated connection, before its first page.

    Then pass ``remember=True`` to every ``observe`` of the walk on the same connection.
    """
    change(direct, "walk_seen_make", {})
    change(direct, "walk_seen_clear", {})


def finish(conn: Conn, source_id: int, *, began_at: datetime, now: datetime | None = None) -> list[int]:
    """A complete listing ended well: retire what two of them missed, mark what this one missed for the first time.

    ``began_at``: the database time at which this listing began. Same connection as ``begin``. What was seen, or written
    (a completion, a request, a new time) since the first of the two listings began stays. Gives the ids retired, those
    that are leased included (they are retired when their claim ends).
    """
    with together(conn):
        rows = fetch(conn, "listing_absent", {"source_id": source_id, "began_at": began_at})
        retire = sorted(row[0] for row in rows if row[1])
        mark = [row[0] for row in rows if not row[1]]
        if mark:
            change(conn, "listing_mark", {"ids": mark, "began_at": began_at})
        if retire:
            return sorted(row[0] for row in fetch(conn, "retire", {"ids": retire, "reason": "absent", "now": now}))
        return []


def note_gone(
    conn: Conn,
    target_ids: Sequence[int],
    *,
    apart: timedelta = GONE_APART,
    reason: str = "gone",
    now: datetime | None = None,
) -> list[int]:
    """The provider said "gone" of these very ids, while the credential still reads a canary. Gives the ids retired.

    The first time marks; the second, at least ``apart`` later and nothing seen or completed between, retires.
    """
    with together(conn):
        rows = fetch(conn, "gone", {"ids": list(target_ids), "apart": apart, "now": now})
        ids = [row[0] for row in rows if row[1]]
        if not ids:
            return []
        return sorted(row[0] for row in fetch(conn, "retire", {"ids": ids, "reason": reason, "now": now}))

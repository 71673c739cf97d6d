"""Forgetting: targets retired long ago leave for good, with everything that hangs on them, in one transaction."""

from datetime import datetime, timedelta

from . import findings
from .statements import Conn, change, fetch


def forget_retired(conn: Conn, *, older_than: timedelta, limit: int = 1_000, now: datetime | None = None) -> int:
    """Remove targets retired at least ``older_than`` ago, at most ``limit`` at once; gives how many.

    Their findings, triage, coverage and history go with them (``retention.retired_days``); nothing else removes a
    target's row. Listed again, such a target is a new one.
    """
    ids = [row[0] for row in fetch(conn, "retired_pick", {"older_than": older_than, "limit": limit, "now": now})]
    if not ids:
        return 0
    findings.purge(conn, ids)
    return change(conn, "retired_forget", {"ids": ids})

"""Policies: in which order changed targets come back, what an upgrade owes, what is checked or refreshed next.

The order is ``sort_key``, then id; a policy is only how that key is computed on write (``target_sort_key``, in the
schema).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from .statements import Conn, change, fetch
from .wakeups import announce

POLICIES = ("oldest_change", "newest_change", "most_overdue", "value", "aged_value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A known target that may be asked about by its id or name."""

    target_id: int
    name: str
    provider_id: str | None
    address: str
    observed_revision: bytes | None


def requeue_stale(
    conn: Conn,
    source_id: int,
    fingerprints: Mapping[str, bytes],
    *,
    limit: int,
    now: datetime | None = None,
) -> int:
    """Admit up to ``limit`` finished targets that one of these scanners covered with another fingerprint, or never.

    Class ``reconcile``. ``limit`` is what is left of ``rescan_on_upgrade_max_per_cycle`` (0 = off), or what an
    operator gave to ``queue requeue --stale-fingerprint``.
    """
    done = 0
    for scanner, fingerprint in sorted(fingerprints.items()):
        for name in ("requeue_stale", "requeue_uncovered"):
            if done < limit:
                values = {
                    "source_id": source_id,
                    "scanner": scanner,
                    "fingerprint": fingerprint,
                    "limit": limit - done,
                    "now": now,
                }
                done += change(conn, name, values)
    if done:
        announce(conn)
    return done


def due_rechecks(conn: Conn, source_id: int, *, limit: int = 100, now: datetime | None = None) -> list[Known]:
    """Finished targets whose claim fell into the provider's blind window, now over: one cheap check each.

    Rows are locked (skipping locked ones) until the transaction ends; ``settle_rechecks`` in it, or they are due again.
    """
    return _known(fetch(conn, "recheck_due", {"source_id": source_id, "limit": limit, "now": now}))


def settle_rechecks(conn: Conn, target_ids: Sequence[int]) -> int:
    """These checks were made; what they saw is observed like anything else."""
    return change(conn, "recheck_settle", {"ids": list(target_ids)})


def refresh_next(conn: Conn, source_id: int, *, limit: int) -> list[Known]:
    """The known targets to walk again under ``refresh_registry``: never, then least recently refreshed."""
    return _known(fetch(conn, "refresh_next", {"source_id": source_id, "limit": limit}))


def refreshed(conn: Conn, target_ids: Sequence[int], *, now: datetime | None = None) -> int:
    """These were walked again; ``last_refreshed_at`` is written here and nowhere else."""
    return change(conn, "refresh_note", {"ids": list(target_ids), "now": now})


def _known(rows: Sequence[tuple[int, str, str | None, str, bytes | None]]) -> list[Known]:
    return [
        Known(target_id=row[0], name=row[1], provider_id=row[2], address=row[3], observed_revision=row[4])
        for row in rows
    ]

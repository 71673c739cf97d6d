"""Requests: a person or a webhook wants a target scanned, cap and cooldown or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ..schema.records import State
from .statements import Conn, fetch
from .wakeups import announce


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What a request did to one target.

    ``accepted`` is false for an ``unresolved`` target (never touched). ``coalesced``: another request was already
    waiting, one scan will serve both.
    """

    target_id: int
    accepted: bool
    coalesced: bool
    state: State


def request(
    conn: Conn, target_ids: Sequence[int], *, now_flag: bool = False, by: str = "", now: datetime | None = None
) -> list[Requested]:
    """Mark targets as wanted: the request counter is raised under each row's lock (queue.md, "Marks and snapshots").

    ``done``, ``failed`` (attempts reset) and ``pending`` become claimable now, before everything that nobody asked
    for; ``deferred`` keeps its time unless ``now_flag``; ``in_progress`` is only marked: its completion puts it back;
    ``retired`` is only marked, for when it is seen again. Unknown ids are missing from the answer. ``by`` is for the
    caller's audit.
    """
    del by  # kept in the signature: the audit row is the runner's to write
    if not target_ids:
        return []
    rows = fetch(conn, "request", {"ids": sorted(set(target_ids)), "now_flag": now_flag, "now": now})
    answers = [Requested(target_id=row[0], accepted=row[1], coalesced=row[2], state=State(row[3])) for row in rows]
    if any(each.state is State.PENDING for each in answers):
        announce(conn)
    return answers

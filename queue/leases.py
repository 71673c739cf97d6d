"""Leases: who works on what, until when. Claim, heartbeat, reap, and what each scanner has covered.

The lease and its token are the only authority on a row (queue.md, "Claiming"): every statement here looks at both.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from uuid import UUID

from ..schema.records import Admission, Claim, Coverage, WorkerIdentity
from .arrays import ints, times
from .statements import Conn, change, fetch, together
from .wakeups import announce

RANKS = 6  # 0-2 requested, 3-5 the rest, by priority
LIMIT_LOCKS = 732_302  # advisory lock namespace of max_in_progress: (namespace, source id), 0 = all sources together
LEASE = timedelta(seconds=60)
FULL_SEARCH = timedelta(seconds=2)


@dataclass(slots=True, kw_only=True)
class LowWater:
    """Where a process's next searches start, by (source, rank), with a full search every few seconds and when empty.

    Dead entries pile up at the head of the ready index while any old snapshot is held open; starting at the last
    claimed ``not_before`` keeps a claim's cost flat (performance.md, 13). Safe to lose, wrong by at most
    ``full_search``; not shared between threads. ``monotonic`` is a monotonic clock in seconds.
    """

    full_search: timedelta = FULL_SEARCH
    monotonic: Callable[[], float] = time.monotonic
    _marks: dict[int, list[datetime | None]] = field(default_factory=dict[int, list[datetime | None]])
    _leased: dict[int, int] = field(default_factory=dict[int, int])
    _limited: frozenset[int] = frozenset()
    _next_full: float = float("-inf")

    def due(self) -> bool:
        """Whether the next search has to be a full one."""
        return self.monotonic() >= self._next_full

    def start_over(self, survey: Sequence[tuple[int, int | None, int]]) -> None:
        """Forget the marks; keep what the survey says of limits and leases."""
        self._marks.clear()
        self._leased = {source_id: leased for source_id, _, leased in survey}
        self._limited = frozenset(source_id for source_id, limit, _ in survey if limit is not None)
        self._next_full = self.monotonic() + self.full_search / timedelta(seconds=1)

    def hurry(self) -> None:
        """Make the next search a full one."""
        self._next_full = float("-inf")

    @property
    def marked(self) -> bool:
        """Whether a search would start anywhere but at the beginning."""
        return bool(self._marks)

    @property
    def limited(self) -> frozenset[int]:
        """Sources with a ``max_in_progress`` of their own at the last survey."""
        return self._limited

    def note(self, source_id: int, rank: int, not_before: datetime) -> None:
        """One row was claimed here: the next search of its lane starts there."""
        marks = self._marks.get(source_id)
        if marks is None:
            marks = self._marks[source_id] = [None] * RANKS
        last = marks[rank]
        if last is None or not_before > last:
            marks[rank] = not_before
        self._leased[source_id] = self._leased.get(source_id, 0) + 1

    def leased(self, source_id: int) -> int:
        """How many leases the source held at the last survey, and was given here since."""
        return self._leased.get(source_id, 0)

    @property
    def sources(self) -> list[int]:
        """The sources of the last survey."""
        return list(self._leased)

    def mark(self, source_id: int, rank: int) -> datetime | None:
        """Where the next search of this lane starts; ``None`` = at its beginning."""
        marks = self._marks.get(source_id)
        return None if marks is None else marks[rank]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapCounts:
    """What one sweep did; ``late`` says how long after its expiry each lease was taken back."""

    pending: int = 0
    failed: int = 0
    retired: int = 0
    unreserved: int = 0
    late: tuple[timedelta, ...] = ()

    @property
    def leases(self) -> int:
        """How many leases were taken back."""
        return self.pending + self.failed + self.retired


def register_worker(conn: Conn, worker: WorkerIdentity, *, slots: int = 1, now: datetime | None = None) -> None:
    """Say who is going to claim. A claim needs no such row; people and wake-ups do."""
    change(
        conn,
        "worker_register",
        {"uuid": worker.uuid, "host": worker.host, "pid": worker.pid, "slots": slots, "now": now},
    )


def stop_worker(conn: Conn, worker: UUID, *, now: datetime | None = None) -> None:
    """Say that this worker process ended in order."""
    change(conn, "worker_stop", {"uuid": worker, "now": now})


def claim(  # noqa: PLR0913 - the signature of queue.md, plus what a test hands in
    conn: Conn,
    worker: UUID,
    *,
    sources: Sequence[int] | None = None,
    limit: int = 1,
    lease: timedelta = LEASE,
    low_water: LowWater | None = None,
    max_in_progress: int | None = None,
    now: datetime | None = None,
) -> list[Claim]:
    """Lease up to ``limit`` targets that may be worked on now, in the order of queue.md, "Claiming".

    ``sources`` are source ids, ``None`` = all. ``max_in_progress`` is the limit over all sources and processes; a
    source's own limit lies in its row. With any limit this takes transaction locks, so commit soon. Without one a claim
    is a single statement: on an autocommit connection it saves two round trips. A batch may be short while more waits:
    ask again at once; an empty one is empty.
    """
    if limit < 1:
        return []
    water = low_water if low_water is not None else LowWater()
    asked = None if sources is None else list(sources)
    surveyed = water.due()
    if surveyed:
        _survey(conn, water, asked)
    claims = _claim_once(conn, worker, asked, limit, lease, water, max_in_progress, now)
    if not claims and water.marked and not surveyed:
        _survey(conn, water, asked)
        claims = _claim_once(conn, worker, asked, limit, lease, water, max_in_progress, now)
    if not claims:
        water.hurry()
    return claims


def _survey(conn: Conn, water: LowWater, asked: list[int] | None) -> None:
    water.start_over([(row[0], row[1], row[2]) for row in fetch(conn, "claim_survey", {"sources": asked})])


def _claim_once(  # noqa: PLR0913, PLR0917 - the values of one statement
    conn: Conn,
    worker: UUID,
    asked: list[int] | None,
    limit: int,
    lease: timedelta,
    water: LowWater,
    most: int | None,
    now: datetime | None,
) -> list[Claim]:
    """One search. Without any limit it is one statement; with one: lock, count, take, each its own statement."""
    leased = {source_id: water.leased(source_id) for source_id in water.sources}
    values: dict[str, object] = {"sources": asked, "limit": limit, "lease": lease, "worker": worker, "now": now}
    if most is None and not water.limited:
        return _take(conn, water, leased, {}, values)
    with together(conn):
        locks = sorted(water.limited | (frozenset({0}) if most is not None else frozenset[int]()))
        fetch(conn, "claim_lock", {"namespace": LIMIT_LOCKS, "ids": ints(locks)})
        room: dict[int, int | None] = {}
        for source_id, held, left in fetch(conn, "claim_room", {"sources": asked, "most": most}):
            if source_id == 0:
                limit = limit if left is None else min(limit, left)
            else:
                # A limit set since the survey was not locked for: no room is handed in, and the statement hands
                # nothing out.
                room[source_id] = left if source_id in water.limited else None
                leased[source_id] = held
        return _take(conn, water, leased, room, values | {"limit": limit}) if limit > 0 else []


def _take(
    conn: Conn, water: LowWater, leased: dict[int, int], room: dict[int, int | None], values: dict[str, object]
) -> list[Claim]:
    """Run the claim statement and note where it came to."""
    lanes: dict[str, object] = {
        "source": ints(leased),
        "leased": ints(leased.values()),
        "room": ints([room.get(source_id) for source_id in leased]),
    }
    for rank in range(RANKS):
        lanes[f"m{rank}"] = times([water.mark(source_id, rank) for source_id in leased])
    claims: list[Claim] = []
    for row in fetch(conn, "claim", lanes | values):
        water.note(row[16], row[17], row[18])
        claims.append(
            Claim(
                target_id=row[0],
                lease_token=row[1],
                source=row[2],
                kind=row[3],
                name=row[4],
                display_name=row[5],
                address=row[6],
                provider_id=row[7],
                attributes=_attributes(row[8]),
                admission=Admission(row[9]),
                attempts=row[10],
                scan_remote_modified_at=row[11],
                scan_started_at=row[12],
                scan_request_no=row[13],
                observed_revision=row[14],
                lease_expires_at=row[15],
            )
        )
    return claims


@lru_cache(maxsize=1024)
def _attributes(text: str) -> Mapping[str, object]:
    """Attributes from JSON; the targets of a batch have few distinct ones, so they share what cannot be changed."""
    return MappingProxyType(json.loads(text))


def heartbeat(
    conn: Conn, worker: UUID, held: Sequence[tuple[int, int]], lease: timedelta = LEASE, *, now: datetime | None = None
) -> set[tuple[int, int]]:
    """Renew all claims of a process in one statement; returns those still held, as ``(target_id, lease_token)``.

    What is missing from the answer is lost: its scanner has to be stopped at once.
    """
    rows = fetch(
        conn,
        "heartbeat",
        {
            "worker": worker,
            "ids": ints([target_id for target_id, _ in held]),
            "tokens": ints([token for _, token in held]),
            "lease": lease,
            "now": now,
        },
    )
    return {(row[0], row[1]) for row in rows}


def reap(conn: Conn, *, max_attempts: int = 5, limit: int = 1000, now: datetime | None = None) -> ReapCounts:
    """Take expired leases back: to ``pending``, or to ``failed`` with ``lease_expired`` when the attempts are used up.

    Needs no knowledge of scanners or sources. Also ends reservations whose time is over. Sleeping workers are told of
    what can be claimed again: left to their poll, it would wait for seconds more than lease and sweep.
    """
    rows = fetch(conn, "reap", {"max_attempts": max_attempts, "limit": limit, "now": now})
    unreserved = change(conn, "unreserve_expired", {"limit": limit, "now": now})
    states = [row[0] for row in rows]
    if unreserved or "pending" in states:
        announce(conn)
    return ReapCounts(
        pending=states.count("pending"),
        failed=states.count("failed"),
        retired=states.count("retired"),
        unreserved=unreserved,
        late=tuple(row[1] for row in rows),
    )


def coverage(conn: Conn, target_ids: Sequence[int]) -> dict[int, list[Coverage]]:
    """What each scanner has covered, by target id; a target without any coverage has no key."""
    found: dict[int, list[Coverage]] = {}
    if not target_ids:
        return found
    for row in fetch(conn, "coverage_read", {"ids": list(target_ids)}):
        found.setdefault(row[0], []).append(
            Coverage(
                scanner=row[1],
                revision=bytes(row[2]),
                fingerprint=bytes(row[3]),
                tips=tuple(bytes(tip).hex() for tip in row[4]),
                scanned_at=row[5],
            )
        )
    return found

"""What a run did and what is left, in numbers and names: counted from events, completed from the database."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ..queue import census, findings_reads
from ..queue.census import Filter
from ..queue.findings_reads import FindingFilter
from ..schema.database import Connection
from ..schema.records import ScanOutcome, State
from .events import CycleEnded, Event, LeaseWasLost, ScanEnded

_SHOWN = 50
_TROUBLE = (State.FAILED, State.UNRESOLVED)
_WAITS = (State.PENDING, State.DEFERRED, State.IN_PROGRESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """One target that is not done, and why."""

    source: str
    name: str
    display_name: str
    state: str
    code: str
    message: str
    next_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run's result. ``targets`` counts all targets of its sources by state."""

    seconds: float
    targets: dict[str, int]
    queued_new: int
    queued_updated: int
    scans: dict[str, int]  # by outcome; one a scanner and claim
    scanned_targets: int
    read_bytes: int
    not_scanned: dict[str, int]
    new_findings: int
    open_findings: dict[str, int]  # by severity
    left: tuple[Left, ...]
    left_count: int
    changed_waiting: int
    cycles_trouble: tuple[str, ...]  # one sentence a source whose last cycle was partial or failed
    not_listed: dict[str, int]
    lost_leases: int

    @property
    def partial(self) -> bool:
        """Whether some source or target failed, or was cut by a limit (exit code 3)."""
        bad = self.scans.get(ScanOutcome.LIMITED.value, 0) + self.scans.get(ScanOutcome.FAILED.value, 0)
        stuck = sum(self.targets.get(state.value, 0) for state in (*_TROUBLE, State.DEFERRED))
        return bool(self.cycles_trouble or bad or stuck or any(left.code not in _PATIENT for left in self.left))

    @property
    def findings(self) -> int:
        """Findings that want somebody: open and reopened ones."""
        return sum(self.open_findings.values())


_PATIENT = frozenset({"waiting", "scanning", "reserved", "interrupted"})


@dataclass(slots=True)
class Tally:
    """Counts events; thread-safe; a listener."""

    scans: Counter[str] = field(default_factory=Counter[str])
    not_scanned: Counter[str] = field(default_factory=Counter[str])
    done: int = 0
    ended: int = 0
    read_bytes: int = 0
    queued_new: int = 0
    queued_updated: int = 0
    lost: int = 0
    cycles: dict[str, CycleEnded] = field(default_factory=dict[str, CycleEnded])
    target_ids: set[int] = field(default_factory=set[int])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        with self._lock:
            match event:
                case ScanEnded():
                    self._scan(event)
                case CycleEnded():
                    self.queued_new += event.queued_new
                    self.queued_updated += event.queued_updated
                    if event.status != "skipped" or event.source not in self.cycles:
                        self.cycles[event.source] = event
                case LeaseWasLost():
                    self.lost += 1
                case _:
                    pass

    def _scan(self, event: ScanEnded) -> None:
        if not event.accepted:
            return
        self.ended += 1
        if event.ending == "completed":
            self.done += 1
            self.target_ids.add(event.claim.target_id)
        for report in event.reports:
            self.scans[report.outcome.value] += 1
            self.read_bytes += report.bytes_read
            for left_out in report.not_scanned:
                self.not_scanned[left_out.reason] += left_out.count
        if not event.reports and event.ending == "failed":
            self.scans[ScanOutcome.FAILED.value] += 1


def summarise(
    conn: Connection, tally: Tally, *, sources: Sequence[tuple[int, str]], seconds: float, since: datetime
) -> Summary:
    """Complete a tally with what the database holds of these sources (id, name)."""
    ids, names = tuple(each[0] for each in sources), tuple(each[1] for each in sources)
    targets: Counter[str] = Counter()
    changed_waiting = 0
    for each in census.counts(conn):
        if each.source_id in ids:
            targets.update({state.value: number for state, number in each.by_state.items() if number})
            changed_waiting += each.changed_waiting
    rows = census.listing(conn, Filter(states=(*_WAITS, *_TROUBLE), sources=ids), limit=_SHOWN).rows
    left = tuple(_left(conn, row) for row in rows)
    open_filter = FindingFilter(sources=names or None)
    nothing: Mapping[tuple[str, str], int] = {}
    counts = findings_reads.count_findings(conn, open_filter) if names else nothing
    new = findings_reads.count_findings(conn, FindingFilter(sources=names or None, since=since)) if names else nothing
    by_severity: Counter[str] = Counter()
    for (_, severity), number in counts.items():
        by_severity[severity] += number
    trouble = tuple(
        f"{name}: {_trouble(event)}"
        for name, event in sorted(tally.cycles.items())
        if event.status in {"partial", "failed"}
    )
    not_listed: Counter[str] = Counter()
    for event in tally.cycles.values():
        not_listed.update(dict(event.not_listed))
    return Summary(
        seconds=seconds,
        targets=dict(targets),
        queued_new=tally.queued_new,
        queued_updated=tally.queued_updated,
        scans=dict(tally.scans),
        scanned_targets=tally.done,
        read_bytes=tally.read_bytes,
        not_scanned=dict(tally.not_scanned),
        new_findings=sum(new.values()),
        open_findings=dict(by_severity),
        left=left,
        left_count=sum(targets[state.value] for state in (*_WAITS, *_TROUBLE)),
        changed_waiting=changed_waiting,
        cycles_trouble=trouble,
        not_listed=dict(not_listed),
        lost_leases=tally.lost,
    )


def _trouble(event: CycleEnded) -> str:
    """What was wrong with a cycle, in one sentence; single targets are listed by themselves."""
    if event.fault_count:
        first = event.faults[0][0]
        return f"{event.fault_count} of {event.fetched} entries have problems (first: {first}, {event.reason})"
    return f"{event.status}: {event.message or event.reason}"


def _left(conn: Connection, row: census.Row) -> Left:
    why = census.explain(conn, row.target_id, history_limit=1)
    code = why.code if why else row.state.value
    message = row.last_error or ""
    if row.state is State.DEFERRED:
        code = row.deferred_reason or code
    elif row.state in _TROUBLE or (row.state is State.PENDING and row.attempts):
        code = row.last_error_code or code
    elif why and why.history and why.history[0].outcome == "released" and row.state is State.PENDING:
        code, message = why.history[0].error_code or code, why.history[0].error or message
    return Left(
        source=row.source,
        name=row.name,
        display_name=row.display_name,
        state=row.state.value,
        code=code,
        message=message or row.unresolved_reason or "",
        next_at=why.next_at if why else None,
    )

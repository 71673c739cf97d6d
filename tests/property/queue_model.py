"""What the queue has to do, as plain Python over dicts: the answer that the database's rows are compared with.

It knows states, marks, counters and rules; not locks, indexes or order of writes. Where the rules leave the choice
open (which of two equal rows), it says what is allowed and the machine checks that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from resweep.schema.records import State

SKEW = timedelta(minutes=10)
EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True, kw_only=True)
class Target:
    """One row, as the rules see it."""

    number: int
    source: int
    name: str
    provider_id: str | None
    state: State
    not_before: datetime
    remote: datetime | None = None
    revision: bytes | None = None
    admission: str = "new"
    priority: int = 1
    attempts: int = 0
    token: int = 0
    lease_until: datetime | None = None
    scan_remote: datetime | None = None
    scan_started: datetime | None = None
    request_no: int = 0
    scan_request_no: int = 0
    completed: datetime | None = None
    reserved_until: datetime | None = None
    retire_reason: str | None = None
    completions: int = 0

    @property
    def changed(self) -> bool:
        """Strictly newer than the baseline; nothing unknown makes a row changed."""
        baseline = self.scan_remote or self.scan_started or self.completed
        return self.remote is not None and baseline is not None and self.remote > baseline

    def rank(self) -> tuple[int, int]:
        """Requested first, then priority."""
        return (0 if self.admission == "requested" else 1, self.priority)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One observation in the model's words: ``remote`` None = the provider gave no usable time."""

    name: str
    provider_id: str | None
    remote: datetime | None = None
    revision: bytes | None = None


@dataclass(slots=True)
class Model:
    """All rows, by id."""

    targets: dict[int, Target] = field(default_factory=dict[int, Target])

    def named(self, source: int, name: str) -> Target | None:
        """The row that has the name."""
        return next((row for row in self.targets.values() if (row.source, row.name) == (source, name)), None)

    def identified(self, source: int, provider_id: str | None) -> Target | None:
        """The row that has the provider's id."""
        if provider_id is None:
            return None
        return next(
            (row for row in self.targets.values() if (row.source, row.provider_id) == (source, provider_id)), None
        )

    def free(self, row: Target, now: datetime) -> bool:
        """Not held by a reservation at ``now``."""
        return row.reserved_until is None or row.reserved_until <= now

    def claimable(self, sources: Iterable[int], now: datetime) -> list[Target]:
        """Rows a claim may take, in the order inside a source."""
        wanted = set(sources)
        rows = [
            row
            for row in self.targets.values()
            if row.source in wanted
            and row.state in {State.PENDING, State.DEFERRED}
            and row.not_before <= now
            and self.free(row, now)
        ]
        return sorted(rows, key=lambda row: (row.source, row.rank(), row.not_before, row.number))

    def requeueable(self, source: int, cooldown: timedelta, now: datetime) -> list[Target]:
        """Rows a capped requeue may take."""
        return [
            row
            for row in self.targets.values()
            if row.source == source
            and row.state is State.DONE
            and row.changed
            and row.completed is not None
            and row.completed <= now - cooldown
            and self.free(row, now)
        ]

    def expired(self, now: datetime) -> list[Target]:
        """Rows whose lease has ended."""
        return [
            row
            for row in self.targets.values()
            if row.state is State.IN_PROGRESS and row.lease_until is not None and row.lease_until <= now
        ]

    def held(self, number: int, token: int) -> Target | None:
        """The row, when this very claim still holds it."""
        row = self.targets.get(number)
        return row if row is not None and row.state is State.IN_PROGRESS and row.token == token else None

    def move(self, row: Target, seen: Seen, now: datetime) -> bool:
        """Take a newer time or another revision; whether anything moved."""
        if seen.revision is not None:
            if seen.revision == row.revision:
                return False
            first = row.revision is None
            row.revision = seen.revision
            row.remote = now if row.remote is None else max(now, row.remote + MICROSECOND)
            return not first or True
        if seen.remote is None or not EARLIEST <= seen.remote <= now + SKEW:
            return False
        if row.remote is not None and seen.remote <= row.remote:
            return False
        row.remote = seen.remote
        return True

    def end(self, row: Target, state: State, now: datetime) -> None:
        """A claim ends: the lease is gone; a row that is to be retired is retired instead."""
        row.lease_until = None
        row.state = State.RETIRED if row.retire_reason else state
        if row.state is State.PENDING:
            row.not_before = min(row.not_before, now)

    def counts(self) -> Mapping[State, int]:
        """Rows by state."""
        return {state: sum(row.state is state for row in self.targets.values()) for state in State}


def within(batch: Sequence[Seen]) -> list[Seen]:
    """A batch without exact repetitions, in order of first appearance."""
    return list(dict.fromkeys(batch))

"""What the queue has to do, as plain Python over a dict: the rows of the database are compared with these.

It knows states, marks, counters and rules; not locks, indexes or statements. Written from the rules, not from the SQL.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from resweep.schema.records import State

SKEW = timedelta(minutes=10)
EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
WAITING = frozenset({State.PENDING, State.DEFERRED})


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
    name_taken: bool = False

    @property
    def changed(self) -> bool:
        """Strictly newer than the baseline; nothing unknown makes a row changed."""
        baseline = self.scan_remote or self.scan_started or self.completed
        return self.remote is not None and baseline is not None and self.remote > baseline

    @property
    def owed(self) -> bool:
        """A request came after the claim's snapshot."""
        return self.request_no > self.scan_request_no

    @property
    def settled(self) -> bool:
        """Its last claim was completed and nobody asks for more."""
        done = self.completed is not None and (self.scan_started is None or self.completed >= self.scan_started)
        return done and not self.owed

    def order(self) -> tuple[bool, int, datetime, int]:
        """Requested first, then priority, time, number."""
        return (self.admission != "requested", self.priority, self.not_before, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One observation; ``time`` None = the provider gave none that can be read."""

    name: str
    provider_id: str | None = None
    time: datetime | None = None
    revision: bytes | None = None


@dataclass(slots=True)
class Model:
    """All rows, by number."""

    targets: dict[int, Target] = field(default_factory=dict[int, Target])

    def named(self, source: int, name: str) -> Target | None:
        """The row that has the name."""
        return next((row for row in self.targets.values() if (row.source, row.name) == (source, name)), None)

    def identified(self, source: int, provider_id: str | None) -> Target | None:
        """The row that has the provider's id."""
        rows = (row for row in self.targets.values() if row.source == source and row.provider_id is not None)
        return next((row for row in rows if row.provider_id == provider_id), None)

    # -- intake

    def rename(self, source: int, page: Sequence[Seen], now: datetime) -> None:
        """Give the names of one page to whom they belong; who loses its name is unresolved."""
        moves: dict[int, str] = {}
        losers: dict[int, str] = {}
        for seen in page:
            mine, holder = self.identified(source, seen.provider_id), self.named(source, seen.name)
            if mine is not None and mine.name != seen.name:
                moves[mine.number] = seen.name
            if holder is not None and holder is not mine and seen.provider_id and holder.provider_id is not None:
                losers[holder.number] = seen.name
        for number, name in losers.items():
            row = self.targets[number]
            if number not in moves:
                moves[number] = f"{name}@id:{row.provider_id}"
                row.name_taken = True
                if row.state is not State.RETIRED:
                    row.state, row.lease_until, row.retire_reason, row.attempts = State.UNRESOLVED, None, None, 0
        for number, name in moves.items():
            row = self.targets[number]
            if number not in losers or not name.startswith(losers[number] + "@id:"):
                if row.state is State.UNRESOLVED and row.name_taken:
                    row.state, row.attempts, row.not_before = State.DONE if row.settled else State.PENDING, 0, now
                row.name_taken = False
            row.name = name

    def take(self, row: Target, seen: Seen, now: datetime) -> bool:
        """A known target was seen: bring a retired one back, move its marks forward; whether its time moved."""
        before = row.remote
        if row.provider_id is None:
            row.provider_id = seen.provider_id
        if seen.revision is not None and seen.revision != row.revision:
            row.remote = now if row.remote is None else max(now, row.remote + MICROSECOND)
            row.revision = seen.revision
        elif seen.time is not None and in_range(seen.time, now) and (row.remote is None or seen.time > row.remote):
            row.remote = seen.time
        if row.state is State.IN_PROGRESS:
            row.retire_reason = None
        if row.state is State.RETIRED:
            row.state = State.DONE if row.settled else State.PENDING
            row.retire_reason, row.attempts, row.not_before = None, 0, now
            if row.owed:
                row.admission = "requested"
            elif row.completed is None:
                row.admission = "new"
        return row.remote != before

    def admit(self, number: int, source: int, seen: Seen, now: datetime) -> None:
        """A new identity."""
        time = seen.time if seen.time is not None and in_range(seen.time, now) else None
        self.targets[number] = Target(
            number=number,
            source=source,
            name=seen.name,
            provider_id=seen.provider_id,
            state=State.PENDING,
            not_before=now,
            remote=now if seen.revision is not None else time,
            revision=seen.revision,
        )

    def requeueable(self, source: int, cooldown: timedelta, now: datetime) -> list[Target]:
        """Rows that a capped requeue may take."""
        return [
            row
            for row in self.targets.values()
            if row.source == source
            and row.state is State.DONE
            and row.changed
            and row.completed is not None
            and row.completed <= now - cooldown
            and row.reserved_until is None
        ]

    # -- claims

    def claimable(self, source: int, now: datetime) -> list[Target]:
        """Rows of one source that a claim may take, in order."""
        rows = (row for row in self.targets.values() if row.source == source and row.state in WAITING)
        return sorted((row for row in rows if row.not_before <= now and row.reserved_until is None), key=Target.order)

    def choose(self, sources: Iterable[int], limit: int, now: datetime) -> list[Target]:
        """Each source's quota of a batch, fewest leased first."""
        leased = {
            source: sum(row.source == source and row.state is State.IN_PROGRESS for row in self.targets.values())
            for source in sources
        }
        work = {source: ready for source in leased if (ready := self.claimable(source, now))}
        quota = -(-limit // max(1, len(work)))
        chosen = [row for source in sorted(work, key=lambda one: (leased[one], one)) for row in work[source][:quota]]
        return chosen[:limit]

    def lease(self, row: Target, now: datetime, period: timedelta) -> None:
        """Take a lease with its snapshots."""
        row.state, row.lease_until = State.IN_PROGRESS, now + period
        row.token += 1
        row.attempts += 1
        row.scan_remote, row.scan_started, row.scan_request_no = row.remote, now, row.request_no

    def held(self, number: int, token: int) -> Target | None:
        """The row, when this very claim still holds it."""
        row = self.targets.get(number)
        return row if row is not None and row.state is State.IN_PROGRESS and row.token == token else None

    def end(self, row: Target, act: str, now: datetime, *, max_attempts: int, delay: timedelta = timedelta(0)) -> None:
        """One claim ends by ``complete``, ``owe``, ``fail``, ``permanent``, ``defer``, ``release`` or ``expire``."""
        owed = row.owed
        given_back = act in {"defer", "release"}
        spent = act == "permanent" or row.attempts >= max_attempts
        row.state = State.RETIRED if row.retire_reason else _after(act, owed=owed, spent=spent)
        row.lease_until = None
        if given_back:
            row.attempts -= 1
        elif owed or act == "complete":
            row.attempts = 0
        if act == "complete":
            row.completed = now
        if given_back:
            row.not_before = now + delay
        elif act == "expire":
            row.not_before = max(row.not_before, now)
        elif owed or act != "complete":
            row.not_before = now
        if owed:
            row.admission = "requested"

    # -- people

    def request(self, row: Target, now: datetime, *, at_once: bool) -> None:
        """Somebody wants it scanned."""
        if row.state is State.UNRESOLVED:
            return
        row.request_no += 1
        revived = row.state in {State.DONE, State.FAILED}
        if revived:
            row.attempts = 0
        if revived or (row.state is State.DEFERRED and at_once):
            row.state, row.not_before = State.PENDING, now
        elif row.state is State.PENDING and (row.admission != "requested" or row.not_before > now):
            row.not_before = now
        if row.state is not State.IN_PROGRESS:
            row.admission = "requested"

    def retire(self, row: Target) -> None:
        """Now, or when the claim ends."""
        if row.state is State.RETIRED or row.retire_reason:
            return
        row.retire_reason = "test"
        if row.state is not State.IN_PROGRESS:
            row.state = State.RETIRED


def _after(act: str, *, owed: bool, spent: bool) -> State:
    """The state in which the end of a claim leaves a row that is not to be retired."""
    if act == "defer":
        return State.DEFERRED
    if act == "release" or owed:
        return State.PENDING
    if act == "complete":
        return State.DONE
    return State.FAILED if spent else State.PENDING


def in_range(time: datetime, now: datetime) -> bool:
    """Whether a provider's time may be believed."""
    return EARLIEST <= time <= now + SKEW

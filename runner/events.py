"""What happens while the runtime works, as records: metrics count them, logs write them, a terminal shows them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from ..schema.records import Claim, ScanReport, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """Targets were leased to this process."""

    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanStarted:
    """A slot began to work on a claim."""

    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanEnded:
    """A claim ended and the database took it in (``accepted``), or the lease was lost before.

    ``ending`` is one of ``completed``, ``failed``, ``deferred``, ``released``; ``state`` is the row's afterwards.
    """

    claim: Claim
    ending: str
    accepted: bool
    state: State | None
    seconds: float
    reports: tuple[ScanReport, ...] = ()
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseWasLost:
    """A lease is no longer ours; its scanner was told to stop."""

    claim: Claim
    why: str  # taken: another may hold it; unrenewed: it could not be renewed in time


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """Expired leases were taken back; ``late`` is how long after expiry."""

    pending: int
    failed: int
    late: tuple[timedelta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleEnded:
    """One turn of discovery is over. The counts are those of the cycle's row."""

    source: str
    cycle_id: int | None
    trigger: str
    status: str  # success, partial, failed, skipped
    reason: str | None  # of what is not success: a closed code
    message: str | None
    seconds: float
    fetched: int = 0
    known: int = 0
    queued_new: int = 0
    queued_updated: int = 0
    changed_waiting: int = 0
    moved: int = 0
    missing_timestamps: int = 0
    invalid_timestamps: int = 0
    older_timestamps: int = 0
    renamed: int = 0
    retired: int = 0
    requests: int = 0
    not_modified: int = 0
    not_listed: tuple[tuple[str, int], ...] = ()
    faults: tuple[tuple[str, str, str], ...] = ()  # (entry, code, message), the first few
    fault_count: int = 0

    @property
    def trouble(self) -> tuple[object, ...]:
        """What is wrong, comparable: the same trouble again is no news."""
        return self.status, self.reason, self.message, self.fault_count, self.faults

    @property
    def news(self) -> bool:
        """Whether it brought something."""
        return bool(self.queued_new or self.queued_updated or self.retired or self.renamed)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAway:
    """The database could not be reached; everything waits and tries again."""

    part: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseBack:
    """The database answers again."""

    part: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something worth a line for people, with a closed code."""

    level: str  # info, warning, error
    code: str
    message: str


Event = Claimed | ScanStarted | ScanEnded | LeaseWasLost | Reaped | CycleEnded | DatabaseAway | DatabaseBack | Noted
Listener = Callable[[Event], None]


def to_all(listeners: Iterable[Listener]) -> Listener:
    """One listener that tells several."""
    told = tuple(listeners)

    def tell(event: Event) -> None:
        for listener in told:
            listener(event)

    return tell

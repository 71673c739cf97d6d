"""The frozen records that pass between rooms.

Names are those of the glossary (``docs/glossary.md``); times are aware UTC, durations are ``timedelta``, byte
identities are ``bytes``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from uuid import UUID

_NOTHING: Mapping[str, object] = MappingProxyType({})


class State(StrEnum):
    """Where a target is in its life (queue.md, "States")."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"
    DEFERRED = "deferred"
    FAILED = "failed"
    UNRESOLVED = "unresolved"
    RETIRED = "retired"


class Admission(StrEnum):
    """Why a target waits; yield is counted by it."""

    REQUESTED = "requested"
    RECONCILE = "reconcile"
    UPDATED = "updated"
    NEW = "new"


class ScanOutcome(StrEnum):
    """How one scanner's work on one claim ended; a closed set, used as a metric label."""

    FINDINGS = "findings"  # scanned, something was found (now or still there)
    CLEAN = "clean"  # scanned, work was done, nothing found
    UNCHANGED = "unchanged"  # proven by digest and fingerprint, or a range without new blobs
    EMPTY = "empty"  # the repository has no commit
    LIMITED = "limited"  # a limit cut the work: kept and shown, never called clean
    FAILED = "failed"


class TimeState(StrEnum):
    """What a provider said of the modification time."""

    VALID = "valid"
    MISSING = "missing"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A discovery record: a target exists, perhaps modified at a time (T02). It never removes anything."""

    name: str  # normalized target: the identity text inside its source
    display_name: str
    address: str  # what a worker clones or pulls; no credential in it
    provider_id: str | None = None  # the provider's stable id, as text
    remote_modified_at: datetime | None = None  # aware UTC; set only when time_state is VALID
    time_state: TimeState = TimeState.MISSING
    revision: bytes | None = None  # opaque content identity (digest of all refs in scope)
    attributes: Mapping[str, object] = field(default_factory=lambda: _NOTHING)  # archived, fork, private, …


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveCounts:
    """What one observe step did; each field is added to the cycle's column of the same name."""

    fetched_count: int = 0
    known_count: int = 0
    queued_new_count: int = 0
    missing_timestamp_count: int = 0
    invalid_timestamp_count: int = 0
    older_timestamp_count: int = 0
    renamed_count: int = 0
    moved_count: int = 0  # known targets whose remote time or revision went forward


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What one scanner has covered of one target: the last complete scan's marks."""

    scanner: str
    revision: bytes  # digest of all refs in scope
    fingerprint: bytes  # scanner version, rules and settings
    tips: tuple[str, ...]  # covered tips: hex object ids, sorted, distinct
    scanned_at: datetime | None = None  # set when read back


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease on one target with its claim snapshot (queue.md, "Claiming")."""

    target_id: int
    lease_token: int
    source: str
    kind: str
    name: str
    display_name: str
    address: str
    provider_id: str | None
    attributes: Mapping[str, object]
    admission: Admission
    attempts: int  # this claim included
    scan_remote_modified_at: datetime | None
    scan_started_at: datetime
    scan_request_no: int
    observed_revision: bytes | None
    lease_expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place where a finding stands. ``path`` is cleaned for storage; ``commit`` and ``blob`` are hex."""

    path: str
    line: int | None
    column: int | None
    commit: str | None
    blob: str | None
    in_head: bool
    mark: str = ""  # the reason beside an inline ignore mark on that line; empty: no mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One secret or fault in one target; never its clear text.

    ``identity`` is HMAC-SHA-256 over target, rule and secret with the deployment's key (32 bytes).
    """

    identity: bytes
    rule: str
    rule_name: str
    severity: str  # critical, high, medium, low, info
    confidence: str  # high, medium, low, or empty
    masked: str  # what may be shown of the secret
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotScanned:
    """What a scan did not read, by reason; a limit that was hit is never clean."""

    reason: str  # blob_too_large, lfs_pointer, submodule, output_limit, time_limit, memory_limit, …
    count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport:
    """What one scanner did for one claim."""

    scanner: str
    outcome: ScanOutcome
    complete: bool  # the whole scope was read: only then may missing findings become fixed
    coverage: Coverage | None  # what is covered from now on; None when nothing may be promised
    findings: tuple[Finding, ...] = ()
    rules: frozenset[str] | None = None  # rules covered; None = every rule this scanner ever reported
    blobs: int = 0  # blobs there were to read
    bytes_read: int = 0
    seconds: float = 0.0
    exit_code: int | None = None
    not_scanned: tuple[NotScanned, ...] = ()
    error_code: str | None = None
    error: str | None = None
    head: str | None = None  # the default branch's commit, hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a worker hands in for one claim; accepted at most once.

    ``owes`` names scanners whose work is still owed: the row goes back to pending for them.
    """

    target_id: int
    lease_token: int
    reports: tuple[ScanReport, ...]
    covered_revision: bytes | None = None
    owes: tuple[str, ...] = ()
    recheck_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of one handed-in completion, failure, deferral or release."""

    target_id: int
    lease_token: int
    accepted: bool  # False: the lease was lost, nothing was written
    state: State | None = None  # the row's state afterwards, when accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """Who claims: a new UUID at every process start; host and pid are labels only."""

    uuid: UUID
    host: str
    pid: int

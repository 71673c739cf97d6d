"""The contract between the program and a scanner: what it is given, what it must say, and how it may fail.

A scanner is a command. Its adapter knows the argument list, which exit code means what, how to read the report, and
the number that proves work was done; it holds no state of a scan. Reading reports is pure and never trusts them:
whatever the scanned repository's authors could write into one is bytes until it is cleaned for storage.
"""

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

from ...schema.errors import ResweepError
from ...schema.records import NotScanned
from .limits import Limits
from .process import Guard

R_contra = TypeVar("R_contra", contravariant=True)


class Needs(StrEnum):
    """What a scanner is pointed at."""

    REPOSITORY = "repository"  # a bare repository: all history in scope
    CHECKOUT = "checkout"  # the default branch's tree, written by us, without .git


class ScanFault(ResweepError):
    """One scanner's work on one target failed; others may have succeeded.

    ``code`` is from a closed set: ``scanner_missing``, ``scanner_exit``, ``scanner_error``, ``scanner_report``,
    ``scanner_no_work``, ``scanner_killed``, ``scanner_lost``, ``scanner_version``, ``scanner_checkout``,
    ``scanner_canary``.
    The text holds no secret: it was redacted by value and by shape.
    """

    def __init__(self, code: str, message: str, *, exit_code: int | None = None) -> None:
        """Keep the closed code and the exit code beside the text."""
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code


class LimitHit(ScanFault):
    """A limit ended the scanner: nothing may be promised, and it is never called clean."""

    def __init__(self, limit: str, message: str, *, exit_code: int | None = None) -> None:
        """``limit`` is a word of ``process.LIMITS_HIT``."""
        super().__init__(f"{limit}_limit", message, exit_code=exit_code)
        self.limit = limit


class ScanInterrupted(ResweepError):
    """The caller's event was set (lost lease, shutdown) and the scanner was ended; there is no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFinding:
    """One place of one secret as a scanner reported it, in clear; lives in memory only, never shown or stored."""

    rule: str
    rule_name: str
    severity: str  # critical, high, medium, low, info
    confidence: str  # high, medium, low, or empty
    secret: bytes
    path: bytes  # inside the repository or checkout
    line: int | None  # from 1
    column: int | None  # from 1
    commit: str | None = None  # hex
    blob: str | None = None  # hex

    def __repr__(self) -> str:
        """Everything but the secret, so that no traceback or log shows it."""
        return f"RawFinding(rule={self.rule!r}, path={self.path!r}, line={self.line}, commit={self.commit})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a report said. ``blobs`` and ``bytes_read`` are the proof of work, None where a scanner gives none."""

    findings: tuple[RawFinding, ...] = ()
    blobs: int | None = None
    bytes_read: int | None = None
    blobs_found: int | None = None  # seen and left out on purpose, where nothing was read and the scanner says so
    not_scanned: tuple[NotScanned, ...] = ()
    rules: frozenset[str] | None = None
    exit_code: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanJob:
    """One scanner's work on one target. The folders are ours; ``work`` is private and removed afterwards."""

    repository: Path
    checkout: Path | None
    since: str | None  # hex of the commit whose history is covered already; None: everything
    work: Path
    limits: Limits
    cancel: threading.Event | None = None


class Scanner(Protocol):
    """An adapter. Methods may be called from several threads at once."""

    @property
    def name(self) -> str:
        """The configured name: coverage, metrics and findings carry it."""
        ...

    @property
    def needs(self) -> Needs:
        """What it is pointed at."""
        ...

    @property
    def incremental(self) -> bool:
        """Whether it can leave out the history of one commit (``ScanJob.since``)."""
        ...

    @property
    def proves_work(self) -> bool:
        """Whether a reading says how much was read, so that zero can be refused."""
        ...

    @property
    def blob_bytes(self) -> range | None:
        """Sizes of the blobs that a whole scan reads; None where it does not say what it left out."""
        ...

    def leaves_out(self, path: bytes) -> bool:
        """Whether it never reads a file of that name (an archive, an image)."""
        ...

    def prepare(self, guard: Guard, *, cancel: threading.Event | None = None) -> None:
        """Once per process: find the program, check its version, warm caches.

        Raises ``ScanFault``, and ``ScanInterrupted`` soon after ``cancel`` is set; then it can be called again.
        """
        ...

    def fingerprint(self) -> bytes:
        """32 bytes over version, rules and settings; equal fingerprints find the same things. After ``prepare``."""
        ...

    def scan(self, guard: Guard, job: ScanJob) -> Reading:
        """Run and read. Raises ``ScanFault``, ``LimitHit``, ``ScanInterrupted``."""
        ...


class Counted(Protocol):
    """How much there is to read, as git counts it (``checkout.BlobCount``)."""

    @property
    def blobs(self) -> int:
        """Distinct blobs."""
        ...

    @property
    def bytes(self) -> int:
        """Their size in bytes, unpacked."""
        ...


class HeldRepository(Protocol):
    """A bare repository of ours, held for the length of a scan (``checkout.Repository``)."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        ...

    @property
    def refs(self) -> Mapping[str, str]:
        """Full names of the refs in scope to hex object ids."""
        ...

    @property
    def digest(self) -> bytes:
        """Digest of all refs in scope."""
        ...

    @property
    def tips(self) -> tuple[str, ...]:
        """Distinct hex ids of the refs in scope, sorted."""
        ...

    @property
    def head(self) -> str | None:
        """The default branch's commit, hex; None when there is none."""
        ...

    @property
    def rewritten(self) -> bool:
        """Whether history that the cache held is no longer reachable."""
        ...

    @property
    def not_scanned(self) -> tuple[NotScanned, ...]:
        """What was left out when the repository was fetched, by reason."""
        ...


class Written(Protocol):
    """What became of a tree that was written (``checkout_tree.TreeWritten``)."""

    @property
    def files(self) -> int:
        """How many files were written."""
        ...

    @property
    def bytes(self) -> int:
        """Their size in bytes."""
        ...

    @property
    def not_scanned(self) -> tuple[NotScanned, ...]:
        """What could not be written, by reason."""
        ...


class Checkouts(Protocol[R_contra]):
    """What a scan asks of the checkout cache."""

    def blobs_since(self, repository: R_contra, covered_tips: Collection[str], /) -> Counted | None:
        """Blobs reachable from the tips and not from ``covered_tips``; None when a range cannot say it."""
        ...

    def synthetic_base(self, repository: R_contra, covered_tips: Collection[str], /) -> str | None:
        """A commit (hex) whose parents are all ``covered_tips``, outside the scope; None when there is none."""
        ...

    def write_tree(self, repository: R_contra, dest: Path, /) -> Written:
        """Write the default branch's tree into the new folder ``dest``, without filters, hooks or links."""
        ...

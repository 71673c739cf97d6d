"""One claim's scan: for each scanner decide whether there is anything to do, do it, and say what came of it.

The rules (product.md, "Scanning"): ``unchanged`` needs the same digest of all refs in scope and the same fingerprint;
an incremental scan needs every covered tip in the copy and still reachable, and closes nothing; what could not be read
is counted; a limit is never clean and covers nothing. One scanner's failure loses nothing of the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Generic, TypeVar

from ...schema.clock import Clock
from ...schema.errors import SourceFault, TargetFault
from ...schema.records import Claim, Coverage, Finding, NotScanned, Place, ScanOutcome, ScanReport
from ...sources.gitcommand import GitCommand
from .base import Checkouts, HeldRepository, LimitHit, Needs, RawFinding, Reading, ScanFault, ScanJob, Scanner, Written
from .identity import FindingsKey, mask, target_identity
from .limits import Limits
from .places import Blob, HeadTree, blob_of, find_blobs, find_marks, new_paths, size_blobs, survey_head
from .process import Guard

R = TypeVar("R", bound=HeldRepository)

# Reasons that mean: there was something of the scope to read, and it was not read because of a bound of ours.
STANDING_LIMITS = frozenset({"blob_too_large", "file_too_large", "tree_limit", "path_too_long"})
DAMAGE = frozenset({"missing_object"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanContext(Generic[R]):
    """What every scan of this process works with. ``checkouts`` and ``git`` carry the claim's cancelling runner."""

    guard: Guard
    git: GitCommand
    checkouts: Checkouts[R]
    key: FindingsKey
    clock: Clock
    limits: Limits
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])  # per scanner, where it has its own
    cancel: Event | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What there is to do for one scanner. ``unchanged``: nothing; ``base``: only what is new since there."""

    unchanged: bool = False
    base: str | None = None
    blobs: int = 0
    bytes: int = 0


class _Work(Generic[R]):
    """One claim's work: what it is about, and what several scanners use of it, made when first asked for."""

    def __init__(self, claim: Claim, repository: R, context: ScanContext[R], stack: ExitStack) -> None:
        self.claim = claim
        self.repository = repository
        self.context = context
        self._stack = stack
        self._checkout: tuple[Path, Written] | None = None
        self._head: HeadTree | None = None

    def checkout(self) -> tuple[Path, Written]:
        """The default branch's tree on disk, without .git, and what of it was written."""
        if self._checkout is None:
            dest = self._stack.enter_context(self.context.guard.work_folder()) / "tree"
            self._checkout = (dest, self.context.checkouts.write_tree(self.repository, dest))
        return self._checkout

    def head(self) -> HeadTree:
        """The default branch's tree as git lists it."""
        if self._head is None:
            self._head = survey_head(self.context.git, self.repository.path, self.repository.head)
        return self._head


def scan_target(
    claim: Claim,
    coverage: Sequence[Coverage],
    repository: R,
    scanners: Sequence[Scanner],
    context: ScanContext[R],
) -> tuple[ScanReport, ...]:
    """Run every scanner that owes work on ``repository``; one report each, in the order of ``scanners``.

    ``coverage`` is what was covered before (one row a scanner). Reports of failed scanners carry ``error_code`` and no
    coverage: those scanners still owe their work. Raises ``ScanInterrupted`` when ``context.cancel`` is set.
    """
    last = {row.scanner: row for row in coverage}
    with ExitStack() as stack:
        work = _Work(claim, repository, context, stack)
        return tuple(_scan_one(scanner, last.get(scanner.name), work) for scanner in scanners)


def _scan_one(scanner: Scanner, last: Coverage | None, work: _Work[R]) -> ScanReport:
    repository, context = work.repository, work.context
    started = context.clock.monotonic()
    try:
        scanner.prepare(context.guard)
        report = _report(scanner, last, work)
    except LimitHit as limit:
        report = ScanReport(
            scanner=scanner.name,
            outcome=ScanOutcome.LIMITED,
            complete=False,
            coverage=None,
            exit_code=limit.exit_code,
            not_scanned=(NotScanned(reason=limit.code, count=1), *repository.not_scanned),
            error_code=limit.code,
            error=str(limit),
        )
    except (ScanFault, TargetFault, SourceFault) as fault:
        report = ScanReport(
            scanner=scanner.name,
            outcome=ScanOutcome.FAILED,
            complete=False,
            coverage=None,
            exit_code=fault.exit_code if isinstance(fault, ScanFault) else None,
            error_code=fault.code,
            error=str(fault),
        )
    return replace(report, seconds=context.clock.monotonic() - started, head=repository.head)


def _report(scanner: Scanner, last: Coverage | None, work: _Work[R]) -> ScanReport:
    repository, context = work.repository, work.context
    fingerprint = scanner.fingerprint()
    head_only = scanner.needs is Needs.CHECKOUT
    head = (repository.head,) if repository.head else ()
    tips = head if head_only else repository.tips
    now = Coverage(scanner=scanner.name, revision=repository.digest, fingerprint=fingerprint, tips=tips)
    if not tips:
        return ScanReport(scanner=scanner.name, outcome=ScanOutcome.EMPTY, complete=True, coverage=now)
    plan = _plan(scanner, last, now, repository, context)
    if plan.unchanged:
        return ScanReport(scanner=scanner.name, outcome=ScanOutcome.UNCHANGED, complete=False, coverage=now)
    reading, plan, unwritten = _read(scanner, plan, work)
    not_scanned = _not_scanned(repository, work.head(), unwritten, reading)
    reasons = {entry.reason for entry in not_scanned}
    findings = _findings(reading.findings, work)
    damaged = bool(reasons & DAMAGE)
    limited = bool(reasons & STANDING_LIMITS)
    same_settings = last is None or last.fingerprint == fingerprint
    return ScanReport(
        scanner=scanner.name,
        outcome=_outcome(findings=bool(findings), damaged=damaged, limited=limited),
        # What a bound leaves out today it left out the last time as well, unless the settings were others.
        complete=plan.base is None and not damaged and (same_settings or not limited),
        coverage=None if damaged else now,
        findings=findings,
        rules=reading.rules,
        blobs=plan.blobs,
        bytes_read=reading.bytes_read or 0,
        exit_code=reading.exit_code,
        not_scanned=not_scanned,
        error_code="missing_object" if damaged else None,
        error="the copy lacks objects that its trees name; it should be fetched again" if damaged else None,
    )


def _outcome(*, findings: bool, damaged: bool, limited: bool) -> ScanOutcome:
    if damaged or (limited and not findings):
        return ScanOutcome.LIMITED
    return ScanOutcome.FINDINGS if findings else ScanOutcome.CLEAN


def _plan(scanner: Scanner, last: Coverage | None, now: Coverage, repository: R, context: ScanContext[R]) -> _Plan:
    """Decide between nothing, what is new, and everything."""
    if last is not None and last.fingerprint == now.fingerprint:
        if last.revision == now.revision:
            return _Plan(unchanged=True)
        if scanner.needs is Needs.CHECKOUT:
            if last.tips == now.tips:  # other branches moved; this scanner reads the default branch's tree only
                return _Plan(unchanged=True)
        elif scanner.incremental and not repository.rewritten and _still_reachable(last, repository, context):
            fresh = context.checkouts.blobs_since(repository, last.tips)
            if fresh is not None and fresh.blobs == 0:
                return _Plan(unchanged=True)
            base = context.checkouts.synthetic_base(repository, last.tips) if fresh is not None else None
            if fresh is not None and base is not None:
                return _Plan(base=base, blobs=fresh.blobs, bytes=fresh.bytes)
    return _whole(repository, context)


def _whole(repository: R, context: ScanContext[R]) -> _Plan:
    count = context.checkouts.blobs_since(repository, ())
    if count is None:
        return _Plan()
    return _Plan(blobs=count.blobs, bytes=count.bytes)


def _still_reachable(last: Coverage, repository: R, context: ScanContext[R]) -> bool:
    """Whether all covered history is in the copy and still part of the scope.

    A branch that was deleted or moved back takes its findings along: that only a whole scan can see.
    """
    if not last.tips:
        return False
    gone = sorted(set(last.tips) - set(repository.tips))
    if not gone:
        return True
    lines = [*gone, *(f"^{tip}" for tip in repository.tips)]
    result = context.git.run(
        ["rev-list", "--max-count=1", "--stdin"],
        git_dir=repository.path,
        stdin="".join(f"{line}\n" for line in lines).encode("ascii"),
        seconds=context.git.settings.transfer_seconds,
    )
    return result.exit_code == 0 and not result.stdout.strip()


def _read(scanner: Scanner, plan: _Plan, work: _Work[R]) -> tuple[Reading, _Plan, tuple[NotScanned, ...]]:
    """Run the scanner; a range that it read nothing of is read again whole, a whole it read nothing of is a failure."""
    repository, context = work.repository, work.context
    checkout: Path | None = None
    unwritten: tuple[NotScanned, ...] = ()
    if scanner.needs is Needs.CHECKOUT:
        checkout, written = work.checkout()
        unwritten = written.not_scanned
        plan = _Plan(blobs=written.files, bytes=written.bytes)
    limits = replace(context.limits, seconds=context.seconds.get(scanner.name, context.limits.seconds))
    while True:
        with context.guard.work_folder() as folder:
            job = ScanJob(
                repository=repository.path,
                checkout=checkout,
                since=plan.base,
                work=folder,
                limits=limits,
                cancel=context.cancel,
            )
            reading = scanner.scan(context.guard, job)
        if plan.base is None:
            return _held_to_count(scanner, reading, plan, repository, context), plan, unwritten
        if not scanner.proves_work or plan.bytes == 0 or reading.bytes_read:
            return reading, plan, unwritten
        fresh = new_paths(context.git, repository.path, repository.tips, plan.base)
        if fresh and all(scanner.leaves_out(path) for path in fresh):
            left_out = NotScanned(reason="file_type", count=plan.blobs)
            return replace(reading, not_scanned=(*reading.not_scanned, left_out)), plan, unwritten
        plan = _whole(repository, context)


def _held_to_count(scanner: Scanner, reading: Reading, plan: _Plan, repository: R, context: ScanContext[R]) -> Reading:
    """Hold what a whole scan says it read against what git counts: nothing read fails, what is missing is counted."""
    if not scanner.proves_work or reading.blobs is None or reading.blobs >= plan.blobs:
        return reading
    readable, too_large = plan.blobs if plan.bytes else 0, 0
    if scanner.blob_bytes is not None:
        sized = size_blobs(context.git, repository.path, scanner.blob_bytes)
        if sized is None:
            return reading
        readable, too_large = sized.readable, sized.too_large
    if readable and not reading.blobs and not reading.blobs_found:
        msg = f"{scanner.name} read nothing, though git counts {readable} blobs that it should read"
        raise ScanFault("scanner_no_work", msg, exit_code=reading.exit_code)
    left_out = (("file_type", readable - reading.blobs), ("blob_too_large", too_large))
    counted = [NotScanned(reason=reason, count=count) for reason, count in left_out if count > 0]
    return replace(reading, not_scanned=(*reading.not_scanned, *counted))


def _not_scanned(
    repository: HeldRepository, head: HeadTree, unwritten: Sequence[NotScanned], reading: Reading
) -> tuple[NotScanned, ...]:
    """Everything that was left out, one entry a reason. What two of us left out for one reason is the larger number."""
    merged: dict[str, NotScanned] = {}
    for entry in (*repository.not_scanned, *head.not_scanned, *unwritten, *reading.not_scanned):
        known = merged.get(entry.reason)
        if known is None or known.count < entry.count:
            merged[entry.reason] = entry
    return tuple(merged[reason] for reason in sorted(merged))


def _findings(raws: Sequence[RawFinding], work: _Work[R]) -> tuple[Finding, ...]:
    """Turn what was reported into findings by identity, each with all its places; the clear text ends here."""
    repository, context = work.repository, work.context
    if not raws:
        return ()
    raws = [replace(raw, commit=raw.commit or repository.head) if raw.blob is None else raw for raw in raws]
    blobs = find_blobs(context.git, repository.path, raws)
    marks = find_marks(context.git, repository.path, raws, blobs)
    target = target_identity(work.claim)
    grouped: dict[bytes, tuple[RawFinding, dict[Place, None]]] = {}
    for raw, place in _places(raws, blobs, marks, work.head()):
        identity = context.key.identify(target, raw.rule, raw.secret)
        grouped.setdefault(identity, (raw, {}))[1][place] = None
    return tuple(
        Finding(
            identity=identity,
            rule=first.rule,
            rule_name=first.rule_name,
            severity=first.severity,
            confidence=first.confidence,
            masked=mask(first.secret),
            places=tuple(places),
        )
        for identity, (first, places) in sorted(grouped.items())
    )


def _places(
    raws: Sequence[RawFinding],
    blobs: Mapping[tuple[str, bytes], Blob],
    marks: Mapping[int, str],
    head: HeadTree,
) -> Iterator[tuple[RawFinding, Place]]:
    for index, raw in enumerate(raws):
        blob = blob_of(raw, blobs)
        object_id = blob.object_id if blob else None
        yield (
            raw,
            Place(
                path=raw.path.decode("utf-8", "backslashreplace"),
                line=raw.line,
                column=raw.column,
                commit=raw.commit,
                blob=object_id,
                in_head=object_id in head.blobs,
                mark=marks.get(index, ""),
            ),
        )

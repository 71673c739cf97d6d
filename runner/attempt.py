"""One claim worked on: the copy brought up to date, every scanner run, and what the end means for the queue.

Whose fault decides (queue.md, "Claiming"): the provider's or the network's defers the target and counts no attempt; a
permanent one fails at once; what this machine cannot see or what was interrupted is given back.
"""

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ..queue.outcomes import Deferral, Failure, Release
from ..schema.errors import SourceFault, TargetFault
from ..schema.records import Claim, Completion, Coverage, ScanOutcome, ScanReport
from ..schema.text import display, store_text
from ..sources.base import Access, Source
from .scanners.base import ScanInterrupted, Scanner
from .scanners.scan import ScanContext, scan_target
from .wiring import Scanning

NOT_VISIBLE_DELAY = timedelta(minutes=5)
BUSY_DELAY = timedelta(seconds=5)
TOO_LARGE_DELAY = timedelta(days=1)
_FAULT_SECONDS = 60.0
_MESSAGE_LIMIT = 2000
_DAMAGED = "missing_object"

Ending = Completion | Failure | Deferral | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a claim ends. ``fault`` is the provider's, to be counted on its source."""

    ending: Ending
    reports: tuple[ScanReport, ...] = ()
    code: str | None = None
    message: str | None = None
    fault: SourceFault | None = None


class Attempts:
    """Works on claims; one per process, used by all its threads."""

    def __init__(
        self,
        scanning: Scanning,
        *,
        adapters: Mapping[str, Source],
        scanners: Mapping[str, tuple[str, ...]],
        default_scanners: Sequence[str],
    ) -> None:
        """``adapters`` and ``scanners`` by source name; other sources are worked on with the defaults."""
        self._scanning = scanning
        self._adapters = adapters
        self._scanners = scanners
        self._default_scanners = tuple(default_scanners)

    def run(self, claim: Claim, coverage: Sequence[Coverage], cancel: threading.Event) -> Verdict:
        """Work on one claim until it is done, or ``cancel`` is set. Raises ``ScanInterrupted`` for that."""
        try:
            reports = self._scan(claim, coverage, cancel)
        except ScanInterrupted:
            raise
        except SourceFault as fault:
            if cancel.is_set():
                raise ScanInterrupted(str(fault)) from fault
            return _put_off(claim, fault)
        except TargetFault as fault:
            if cancel.is_set():
                raise ScanInterrupted(str(fault)) from fault
            return _for_target(claim, fault)
        if cancel.is_set() and any(report.outcome is ScanOutcome.FAILED for report in reports):
            raise ScanInterrupted("stopped while scanners ran")
        if any(report.error_code == _DAMAGED for report in reports):
            self._scanning.cache.discard(claim.address, claim.kind)
        return conclude(claim, reports)

    def _scan(self, claim: Claim, coverage: Sequence[Coverage], cancel: threading.Event) -> tuple[ScanReport, ...]:
        scanning = self._scanning
        runner = scanning.guard.command_runner(cancel=cancel)
        cache = scanning.cache.with_runner(runner)
        adapter = self._adapters.get(claim.source)
        access: Access | None = adapter.access(claim.address) if adapter is not None else None
        context = ScanContext(
            guard=scanning.guard,
            git=scanning.git.with_runner(runner),
            checkouts=cache,
            key=scanning.key,
            clock=scanning.clock,
            limits=scanning.limits,
            seconds=scanning.seconds,
            cancel=cancel,
        )
        with cache.hold(claim.address, claim.kind, access=access) as repository:
            return scan_target(claim, coverage, repository, self._chosen(claim), context)

    def _chosen(self, claim: Claim) -> list[Scanner]:
        names = self._scanners.get(claim.source, self._default_scanners)
        return [self._scanning.scanners[name] for name in names if name in self._scanning.scanners]


def conclude(claim: Claim, reports: Sequence[ScanReport]) -> Verdict:
    """What finished scanners mean for the claim.

    All failed: an attempt that failed. Some failed: what succeeded is stored and the rest is owed. A limit that was
    hit is stored as ``limited``: it promises nothing, and trying at once again would hit it again.
    """
    failed = [report for report in reports if report.outcome is ScanOutcome.FAILED or report.error_code == _DAMAGED]
    if failed and len(failed) == len(reports):
        first = failed[0]
        code, message = first.error_code or "scanner_exit", store_text(first.error or "", _MESSAGE_LIMIT)
        return Verdict(
            ending=Failure(
                target_id=claim.target_id,
                lease_token=claim.lease_token,
                code=code,
                message=message,
                attempts=claim.attempts,
            ),
            reports=tuple(reports),
            code=code,
            message=message,
        )
    kept = tuple(report for report in reports if report not in failed)
    covered = {report.coverage.revision for report in kept if report.coverage is not None}
    whole = not failed and len(covered) == 1 and all(report.coverage is not None for report in kept)
    limited = next((report for report in kept if report.outcome is ScanOutcome.LIMITED), None)
    told = failed[0] if failed else limited
    return Verdict(
        ending=Completion(
            target_id=claim.target_id,
            lease_token=claim.lease_token,
            reports=kept,
            covered_revision=next(iter(covered)) if whole else None,
            owes=tuple(report.scanner for report in failed),
        ),
        reports=tuple(reports),
        code=told.error_code if told else None,
        message=told.error if told else None,
    )


def released(claim: Claim, reason: str, *, delay: timedelta = timedelta(0), message: str | None = None) -> Verdict:
    """Give a claim back, no attempt counted."""
    return Verdict(
        ending=Release(target_id=claim.target_id, lease_token=claim.lease_token, reason=reason, delay=delay),
        code=reason,
        message=message,
    )


def _put_off(claim: Claim, fault: SourceFault) -> Verdict:
    """The provider's or the network's fault: later, no attempt counted."""
    message = store_text(str(fault), _MESSAGE_LIMIT)
    return Verdict(
        ending=Deferral(
            target_id=claim.target_id,
            lease_token=claim.lease_token,
            reason=fault.code,
            message=message,
            delay=timedelta(seconds=_FAULT_SECONDS * (0.5 + random.random())),  # noqa: S311 - spreads the next tries
        ),
        code=fault.code,
        message=message,
        fault=fault,
    )


def _for_target(claim: Claim, fault: TargetFault) -> Verdict:
    message = store_text(str(fault), _MESSAGE_LIMIT)
    if fault.code == "not_visible":
        return released(claim, fault.code, delay=NOT_VISIBLE_DELAY, message=message)
    if fault.code == "busy":
        return released(claim, fault.code, delay=BUSY_DELAY, message=message)
    if fault.code == "too_large":
        deferral = Deferral(
            target_id=claim.target_id,
            lease_token=claim.lease_token,
            reason=fault.code,
            message=message,
            delay=TOO_LARGE_DELAY,
        )
        return Verdict(ending=deferral, code=fault.code, message=message)
    failure = Failure(
        target_id=claim.target_id,
        lease_token=claim.lease_token,
        code=fault.code,
        message=message,
        permanent=fault.permanent,
        attempts=claim.attempts,
    )
    return Verdict(ending=failure, code=fault.code, message=message)


def crashed(claim: Claim, error: BaseException) -> Verdict:
    """A fault of ours while working on a claim: an attempt that failed, so that one target cannot stop the rest."""
    message = store_text(f"{type(error).__name__}: {display(str(error), 500)}", _MESSAGE_LIMIT)
    failure = Failure(
        target_id=claim.target_id,
        lease_token=claim.lease_token,
        code="internal",
        message=message,
        attempts=claim.attempts,
    )
    return Verdict(ending=failure, code="internal", message=message)

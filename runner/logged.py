"""Events as log lines: one for each thing worth a line, with its target, claim and cycle."""

from typing import Any

from ..schema.records import Claim, ScanOutcome
from .events import (
    Claimed,
    CycleEnded,
    DatabaseAway,
    DatabaseBack,
    Event,
    LeaseWasLost,
    Noted,
    Reaped,
    ScanEnded,
    ScanStarted,
)
from .log import logger


class LogListener:
    """A listener that logs. Scans that found nothing new to do are logged at debug."""

    def __init__(self) -> None:
        """Log to the program's log."""
        self._log = logger()
        self._trouble: dict[str, tuple[object, ...]] = {}  # by source: of its last cycle, so that it is said once

    def __call__(self, event: Event) -> None:
        """Log one event."""
        match event:
            case Claimed():
                self._log.debug("claimed", targets=len(event.claims))
            case ScanStarted():
                self._log.debug("scan started", **_claim(event.claim))
            case ScanEnded():
                self._scan(event)
            case CycleEnded():
                self._cycle(event)
            case LeaseWasLost():
                self._log.warning("lease lost", why=event.why, **_claim(event.claim))
            case Reaped():
                late = max((each.total_seconds() for each in event.late), default=0.0)
                self._log.warning(
                    "expired leases taken back",
                    pending=event.pending,
                    failed=event.failed,
                    latest_seconds=round(late, 1),
                )
            case DatabaseAway():
                self._log.warning("database away, trying again", part=event.part, error=event.message)
            case DatabaseBack():
                self._log.info("database back", part=event.part, seconds=round(event.seconds, 1))
            case Noted():
                getattr(self._log, event.level)(event.message, code=event.code)

    def _scan(self, event: ScanEnded) -> None:
        fields: dict[str, Any] = _claim(event.claim) | {"seconds": round(event.seconds, 2)}
        if not event.accepted:
            self._log.warning("result refused, the lease was lost", ending=event.ending, **fields)
            return
        if event.state is not None:
            fields["state"] = event.state.value
        if event.ending != "completed":
            level = "error" if event.ending == "failed" else "warning"
            getattr(self._log, level)(f"scan {event.ending}", code=event.code, error=event.message, **fields)
            return
        outcomes = [report.outcome.value for report in event.reports]
        fields |= {
            "outcome": ",".join(dict.fromkeys(outcomes)),
            "findings": sum(len(report.findings) for report in event.reports),
            "bytes_read": sum(report.bytes_read for report in event.reports),
        }
        left_out = {item.reason: item.count for report in event.reports for item in report.not_scanned}
        if left_out:
            fields["not_scanned"] = left_out
        if event.code is not None:
            self._log.warning("scanned in part", code=event.code, error=event.message, **fields)
        elif set(outcomes) <= {ScanOutcome.UNCHANGED.value}:
            self._log.debug("unchanged", **fields)
        else:
            self._log.info("scanned", **fields)

    def _cycle(self, event: CycleEnded) -> None:
        fields: dict[str, Any] = {
            "source": event.source,
            "cycle": event.cycle_id,
            "trigger": event.trigger,
            "status": event.status,
            "seconds": round(event.seconds, 2),
            "fetched": event.fetched,
            "queued_new": event.queued_new,
            "queued_updated": event.queued_updated,
            "changed_waiting": event.changed_waiting,
        }
        if event.retired:
            fields["retired"] = event.retired
        if event.not_listed:
            fields["not_listed"] = dict(event.not_listed)
        if event.status == "skipped":
            self._log.debug("cycle skipped", code=event.reason, **fields)
            return
        known = self._trouble.get(event.source) == event.trouble
        self._trouble[event.source] = event.trouble
        if event.status in {"partial", "failed"} and not known:
            for entry, code, message in event.faults:
                self._log.warning("entry has a problem", source=event.source, entry=entry, code=code, error=message)
            self._log.warning("cycle ended", code=event.reason, error=event.message, **fields)
        elif event.news:
            self._log.info("cycle ended", **fields)
        else:
            self._log.debug("cycle ended", code=event.reason, **fields)


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "source": claim.source,
        "target": claim.name,
        "target_id": claim.target_id,
        "claim": claim.lease_token,
        "attempt": claim.attempts,
    }

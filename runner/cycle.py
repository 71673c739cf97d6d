"""One turn of discovery: walk a source, observe what it lists, admit what changed under the cap, record all of it.

A step is at most 1,000 records or 5 seconds of pages and one transaction: fence, observe, requeue, count, on the
connection that holds the cycle's lock (queue.md, "Observe and requeue under a hard cap").
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta

from ..ledger import server
from ..queue import cycles, intake, policy, removal
from ..queue import sources as queue_sources
from ..queue.census import Filter, count_listing
from ..schema.clock import Clock
from ..schema.database import Connection, Database
from ..schema.errors import CycleFenced, SourceFault
from ..schema.records import Observation, ObserveCounts, State
from ..schema.text import store_text
from ..sources.base import EntryFault, Page, WalkLimits
from .events import CycleEnded
from .wiring import ActiveSource

STEP_RECORDS = 1_000
STEP_SECONDS = 5.0
_SHOWN_FAULTS = 20
_MESSAGE_LIMIT = 2000
_HARMLESS = frozenset({"duplicate"})  # named twice: nothing is missing because of it


class _Stopped(Exception):
    """The walk was ended because this process stops."""


@dataclass(slots=True, kw_only=True)
class _Tally:
    """A cycle's numbers while it runs."""

    counts: Counter[str] = field(default_factory=Counter[str])
    queued_updated: int = 0
    pages: int = 0  # since the last step, as are the next two
    requests: int = 0
    not_modified: int = 0
    not_listed: Counter[str] = field(default_factory=Counter[str])
    faults: list[EntryFault] = field(default_factory=list[EntryFault])
    fault_count: int = 0
    complete: bool = False
    retired: int = 0

    def add(self, counts: ObserveCounts) -> None:
        self.counts.update({name: number for name, number in asdict(counts).items() if number})

    def page(self, page: Page) -> None:
        self.pages += 1
        self.requests += page.requests
        self.not_modified += page.not_modified
        self.not_listed.update(page.not_listed)
        self.complete = page.complete
        self.fault_count += sum(fault.code not in _HARMLESS for fault in page.faults)
        room = _SHOWN_FAULTS - len(self.faults)
        self.faults += page.faults[:room]


class Cycle:
    """Runs cycles of one source; ``run`` is one turn and can be called alone."""

    def __init__(
        self,
        source: ActiveSource,
        *,
        database: Database,
        clock: Clock,
        fingerprints: Callable[[], Mapping[str, bytes]] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """``fingerprints``: scanners' current ones, for rescans after an upgrade. ``stopping`` ends a walk early."""
        self._source = source
        self._config = source.config
        self._database = database
        self._clock = clock
        self._fingerprints = fingerprints
        self._stopping = stopping

    def run(self, trigger: str, *, by_hand: bool = False, admit_updates: bool = True) -> CycleEnded:
        """One cycle. ``by_hand``: a person asked, so a backlog does not keep it back; no update is admitted if told so.

        A provider's fault ends it as ``partial`` or ``failed`` and is counted on the source; nothing is removed then.
        Raises ``DatabaseUnavailable`` and what the database raises.
        """
        began = self._clock.monotonic()
        source_id = self._source.source_id
        with self._database.direct() as direct:
            if not cycles.hold(direct, source_id):
                return self._ended(began, None, trigger, "skipped", "held", "another process runs it now", _Tally())
            try:
                cycle_id = cycles.begin(
                    direct, source_id, trigger=trigger, settings_fingerprint=settings_fingerprint(self._source)
                )
                return self._held(direct, cycle_id, trigger, began, by_hand=by_hand, admit_updates=admit_updates)
            finally:
                if not direct.closed:
                    cycles.let_go(direct, source_id)

    def _held(
        self, direct: Connection, cycle_id: int, trigger: str, began: float, *, by_hand: bool, admit_updates: bool
    ) -> CycleEnded:
        tally = _Tally()
        admit = True
        if not by_hand and self._config.backlog_first != "off":
            waiting = cycles.backlog(direct, self._source.source_id)
            if waiting and self._config.backlog_first == "skip":
                message = f"{waiting} of its targets wait or are being scanned, and come first"
                cycles.finish(direct, cycle_id, status="skipped", error_code="backlog", error_message=message)
                return self._ended(began, cycle_id, trigger, "skipped", "backlog", message, tally)
            admit = not waiting
        status = "success"
        reason: str | None = None
        told: str | None = None
        try:
            self._walk(direct, cycle_id, tally, admit=admit, admit_updates=admit_updates and admit)
        except SourceFault as fault:
            status = "partial" if tally.counts["fetched_count"] else "failed"
            reason, told = fault.code, store_text(str(fault), _MESSAGE_LIMIT)
        except _Stopped:
            status, reason, told = "partial", "stopped", "this process was stopped before the walk was over"
        except CycleFenced as fenced:
            return self._ended(began, cycle_id, trigger, "failed", "fenced", str(fenced), tally)
        except BaseException as error:
            if not direct.closed and direct.info.transaction_status.name == "IDLE":
                cycles.finish(
                    direct,
                    cycle_id,
                    status="failed",
                    error_code="internal",
                    error_message=store_text(f"{type(error).__name__}: {error}", _MESSAGE_LIMIT),
                )
            raise
        if status == "success":
            status, reason, told = self._judge(direct, tally)
        changed_waiting = intake.count_changed_waiting(direct, self._source.source_id)
        cycles.finish(
            direct,
            cycle_id,
            status=status,
            changed_waiting=changed_waiting,
            complete_listing=tally.complete,
            error_code=reason,
            error_message=told,
        )
        self._note(direct, status, reason, told)
        return self._ended(began, cycle_id, trigger, status, reason, told, tally, changed_waiting=changed_waiting)

    def _walk(self, direct: Connection, cycle_id: int, tally: _Tally, *, admit: bool, admit_updates: bool) -> None:
        remember = self._source.adapter.capabilities.complete_listing
        began_at = server.moment(direct)
        if remember:
            removal.begin(direct)
        limits = _limits(self._source)
        records: list[Observation] = []
        ends = self._clock.monotonic() + STEP_SECONDS
        stepped = False
        try:
            for page in self._source.adapter.walk(limits):
                self._end_if_stopping(tally)  # before it counts: what was cut off looks like a fault of its target
                tally.page(page)
                records += page.observations
                while len(records) >= STEP_RECORDS or (records and self._clock.monotonic() >= ends):
                    step, records = records[:STEP_RECORDS], records[STEP_RECORDS:]
                    self._step(direct, cycle_id, step, tally, admit=admit, updates=admit_updates, remember=remember)
                    stepped = True
                    ends = self._clock.monotonic() + STEP_SECONDS
            self._end_if_stopping(tally)
        except SourceFault:
            self._end_if_stopping(tally)  # git was told to end: no fault of the source
            raise
        finally:
            if records or not stepped:
                self._step(direct, cycle_id, records, tally, admit=admit, updates=admit_updates, remember=remember)
        if remember and tally.complete:
            with direct.transaction():
                cycles.fence(direct, cycle_id)
                retired = removal.finish(direct, self._source.source_id, began_at=began_at)
                tally.retired = len(retired)
                if retired:
                    cycles.add(direct, cycle_id, retired=len(retired))

    def _end_if_stopping(self, tally: _Tally) -> None:
        if self._stopping():
            tally.complete = False
            raise _Stopped

    def _step(
        self,
        direct: Connection,
        cycle_id: int,
        records: Sequence[Observation],
        tally: _Tally,
        *,
        admit: bool,
        updates: bool,
        remember: bool,
    ) -> None:
        """One transaction: fence, observe, requeue what is left of the cap, count."""
        config, source_id = self._config, self._source.source_id
        pages, requests, not_modified = tally.pages, tally.requests, tally.not_modified
        with direct.transaction():
            so_far = cycles.fence(direct, cycle_id)
            counts = intake.observe(
                direct,
                source_id,
                records,
                admit=admit,
                max_future_skew=timedelta(seconds=config.max_future_skew_seconds),
                remember=remember,
            )
            updated = reconciled = 0
            if updates and config.updated_rescan_enabled:
                updated = intake.requeue_changed(
                    direct,
                    source_id,
                    limit=config.updated_rescan_max_per_cycle - so_far.queued_updated_count,
                    cooldown=timedelta(seconds=config.updated_rescan_cooldown_seconds),
                )
            if updates and config.rescan_on_upgrade_max_per_cycle and self._fingerprints is not None:
                current = self._fingerprints()
                reconciled = policy.requeue_stale(
                    direct,
                    source_id,
                    {name: current[name] for name in config.scanners if name in current},
                    limit=config.rescan_on_upgrade_max_per_cycle - so_far.queued_reconcile_count,
                )
            cycles.add(
                direct,
                cycle_id,
                counts,
                pages=pages,
                requests=requests,
                not_modified=not_modified,
                queued_updated=updated,
                queued_reconcile=reconciled,
            )
        tally.add(counts)
        tally.queued_updated += updated
        tally.counts["requests_told"] += requests
        tally.counts["not_modified_told"] += not_modified
        tally.pages = tally.requests = tally.not_modified = 0

    def _judge(self, direct: Connection, tally: _Tally) -> tuple[str, str | None, str | None]:
        """Success, unless entries could not be read, or a source that had targets lists none (a health event)."""
        if tally.fault_count:
            first = next(fault for fault in tally.faults if fault.code not in _HARMLESS)
            more = f" (and {tally.fault_count - 1} more)" if tally.fault_count > 1 else ""
            return "partial", first.code, store_text(f"{first.entry}: {first.message}{more}", _MESSAGE_LIMIT)
        if not tally.counts["fetched_count"] and _has_targets(direct, self._source.source_id):
            return "partial", "zero_results", "nothing was listed, though targets are known: nothing is removed"
        return "success", None, None

    def _note(self, direct: Connection, status: str, reason: str | None, message: str | None) -> None:
        """Tell the source's row what the provider did; three faults in a row pause it."""
        if status in {"failed", "partial"} and reason in PROVIDER_FAULTS:
            queue_sources.note_fault(direct, self._source.source_id, code=reason or "", message=message or "")
        elif status == "success":
            queue_sources.note_success(direct, self._source.source_id)

    def _ended(  # noqa: PLR0913, PLR0917 - one argument a column
        self,
        began: float,
        cycle_id: int | None,
        trigger: str,
        status: str,
        reason: str | None,
        message: str | None,
        tally: _Tally,
        *,
        changed_waiting: int = 0,
    ) -> CycleEnded:
        counts = tally.counts
        return CycleEnded(
            source=self._config.name,
            cycle_id=cycle_id,
            trigger=trigger,
            status=status,
            reason=reason,
            message=message,
            seconds=self._clock.monotonic() - began,
            fetched=counts["fetched_count"],
            known=counts["known_count"],
            queued_new=counts["queued_new_count"],
            queued_updated=tally.queued_updated,
            changed_waiting=changed_waiting,
            moved=counts["moved_count"],
            missing_timestamps=counts["missing_timestamp_count"],
            invalid_timestamps=counts["invalid_timestamp_count"],
            older_timestamps=counts["older_timestamp_count"],
            renamed=counts["renamed_count"],
            retired=tally.retired,
            requests=counts["requests_told"],
            not_modified=counts["not_modified_told"],
            not_listed=tuple(sorted(tally.not_listed.items())),
            faults=tuple((fault.entry, fault.code, fault.message) for fault in tally.faults),
            fault_count=tally.fault_count,
        )


PROVIDER_FAULTS = frozenset(
    {"dns", "tls", "connect", "timeout", "server", "limited", "credential", "malformed", "unreadable"}
)
"""Codes of ``SourceFault``: whose third in a row pauses the source."""


def settings_fingerprint(source: ActiveSource) -> bytes:
    """What of the settings decides about a cycle, as 32 bytes: shown beside each cycle."""
    shown = {key: value for key, value in asdict(source.config).items() if key != "specs"}
    shown["scope"] = source.config.scope
    return hashlib.sha256(json.dumps(shown, sort_keys=True, default=str).encode()).digest()


def _limits(source: ActiveSource) -> WalkLimits:
    """Hard bounds: pages and results of a feed; folders and lists are walked whole, bounded by results only."""
    config = source.config
    if source.adapter.capabilities.per_page_requests and config.kind != "git":
        return WalkLimits(page_size=config.per_page, max_pages=config.max_pages, max_results=config.max_results)
    return WalkLimits(max_results=None)


def _has_targets(direct: Connection, source_id: int) -> bool:
    living = tuple(state for state in State if state is not State.RETIRED)
    return count_listing(direct, Filter(states=living, sources=(source_id,))) > 0

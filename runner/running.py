"""The running part of a runtime: discovery, passes and workers, from the start's last step to the end."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from ..queue import census, cycles, intake
from ..queue import sources as queue_sources
from ..schema.clock import Clock
from ..schema.errors import DatabaseUnavailable, UsageFault
from ..schema.records import WorkerIdentity
from .authority import Authority
from .config import Configuration
from .config_sources import SourceConfig
from .cycle import Cycle
from .events import CycleEnded, Listener, Noted
from .housekeeping import housekeep
from .metrics import Metrics
from .passes import Pass, Passes
from .pool import make_pool, sweep
from .schedule import STARTUP_SECONDS
from .summary import Tally
from .wiring import ActiveSource, Scanning, Store
from .workers import WorkerPool

_ABANDONED_SECONDS = 60.0
_HOUSEKEEPING_SECONDS = 3600.0
_EMBEDDED_SECONDS = 2.0
_DRAIN_TICK_SECONDS = 0.1
_MOST_ROUNDS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What one start does. ``sources`` are all that this process discovers and scans; ``only`` restricts workers."""

    sources: tuple[SourceConfig, ...]
    once: bool = False
    workers: bool = True
    scheduler: bool = True
    web: bool = True
    only: tuple[str, ...] = ()  # names of sources that workers take targets from, configured here or not
    all_targets: bool = True  # workers take targets of every source, not of ``sources`` alone
    capped_by_hand: frozenset[str] = frozenset()  # sources whose cap was set: one cycle's worth with ``once``


@dataclass(slots=True)
class Stop:
    """How the end is asked for: ``asked`` orderly, ``at_once`` without grace."""

    asked: threading.Event = field(default_factory=threading.Event)
    at_once: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the supervisor and the running part both hold."""

    configuration: Configuration
    options: Options
    clock: Clock
    stop: Stop
    tally: Tally
    metrics: Metrics
    tell: Listener
    worker: WorkerIdentity


class Ready:
    """The running part: made when every step of the start went well."""

    def __init__(self, shared: Shared, store: Store, scanning: Scanning, active: Sequence[ActiveSource]) -> None:
        """``active`` are the sources this process discovers; ``store`` and ``scanning`` outlive it."""
        self._shared = shared
        self._store = store
        self._scanning = scanning
        self._active = active
        self._options = shared.options
        self._settings = shared.configuration.settings

    # --- parts ---

    def _pool(self, stack: ExitStack, proven: Callable[[], None]) -> WorkerPool | None:
        """Begin to scan, once the scanners have shown that they find something."""
        if not self._options.workers:
            return None
        proven()
        shared, workers = self._shared, self._settings.workers
        if shared.stop.asked.is_set():  # the scanners' test takes a while: nothing begins after the end was asked for
            return None
        pool = make_pool(
            shared.configuration,
            self._store.database,
            self._scanning,
            self._active,
            tell=shared.tell,
            worker=shared.worker,
            clock=shared.clock,
            only=self._only(),
        )
        shared.metrics.set_slots(workers.concurrency)
        pool.start()
        stack.callback(lambda: pool.stop(workers.grace_seconds, at_once=shared.stop.at_once))
        return pool

    def _only(self) -> list[int] | None:
        """The ids of sources that are claimed from; None: all."""
        if self._options.all_targets:
            return None
        ids = [source.source_id for source in self._active]
        known = {source.config.name for source in self._active}
        with self._store.database.connection() as conn:
            for name in self._options.only:
                if name not in known:
                    found = queue_sources.find(conn, name)
                    if found is None:
                        message = f"--sources: there is no source {name!r}; `resweep sources list` shows them"
                        raise UsageFault(message)
                    ids.append(found)
        return ids

    def _cycle(self, source: ActiveSource) -> Cycle:
        return Cycle(
            source,
            database=self._store.database,
            clock=self._shared.clock,
            fingerprints=self._fingerprints,
            stopping=self._shared.stop.asked.is_set,
        )

    def _reap_cycles(self, _trigger: str) -> bool:
        self._store.database.run(cycles.reap_abandoned)
        return True

    def _fingerprints(self) -> dict[str, bytes]:
        scanners = self._scanning.scanners
        for scanner in scanners.values():
            scanner.prepare(self._scanning.guard)
        return {name: scanner.fingerprint() for name, scanner in scanners.items()}

    def _upkeep(self) -> list[Pass]:
        """What every runtime does for all, whoever leads: both are safe with any number of processes."""
        database = self._store.database
        passes = [sweep(self._shared.configuration, database, self._shared.tell)]
        if self._store.embedded is not None:
            passes.append(Pass(name="embedded", interval_seconds=_EMBEDDED_SECONDS, run=self._keep_server))
        if self._options.scheduler and not self._options.once:
            passes += [
                Pass(
                    name="abandoned",
                    interval_seconds=_ABANDONED_SECONDS,
                    run=self._reap_cycles,
                ),
                Pass(
                    name="housekeeping",
                    interval_seconds=_HOUSEKEEPING_SECONDS,
                    startup_seconds=60.0,
                    run=partial(housekeep, database, self._scanning.cache, self._settings.retention),
                ),
            ]
        return passes

    def _keep_server(self, _trigger: str) -> bool:
        """The embedded server is ours: start it again when it died."""
        embedded = self._store.embedded
        if embedded is not None and embedded.status().state == "stopped" and not self._shared.stop.asked.is_set():
            self._shared.tell(
                Noted(level="warning", code="server_died", message="the embedded PostgreSQL is down; starting it again")
            )
            embedded.start()
        return True

    # --- running on and on ---

    def serve(self, stack: ExitStack, proven: Callable[[], None]) -> None:
        """Work until the end is asked for."""
        shared = self._shared
        passes = self._upkeep()
        if self._options.scheduler:
            lead = Authority(self._store.database, tell=shared.tell, stopping=shared.stop.asked)
            if any(not source.config.ad_hoc for source in self._active):
                lead.start()
                stack.callback(lead.close)
            for source in self._active:
                passes.append(
                    Pass(
                        name=f"discover {source.config.name}",
                        interval_seconds=source.config.interval_seconds,
                        startup_seconds=0.0 if source.config.ad_hoc else STARTUP_SECONDS,
                        run=partial(self._discover, self._cycle(source)),
                        allowed=(lambda: True) if source.config.ad_hoc else lambda: lead.leading,
                    )
                )
        running = Passes(passes, clock=shared.clock, tell=shared.tell)
        running.start()
        stack.callback(lambda: running.stop(5.0))
        self._pool(stack, proven)
        if not shared.stop.asked.is_set():
            shared.tell(Noted(level="info", code="ready", message="ready"))
        shared.stop.asked.wait()
        shared.tell(Noted(level="info", code="stopping", message="stopping: no new scans, running ones may finish"))

    def _discover(self, cycle: Cycle, trigger: str) -> bool:
        ended = cycle.run(trigger)
        self._shared.tell(ended)
        # Single entries that cannot be read are no reason to ask the provider more often than it should be.
        return ended.status in {"success", "skipped"} or ended.reason == "stopped" or bool(ended.fault_count)

    # --- once ---

    def once(self, stack: ExitStack, proven: Callable[[], None]) -> None:
        """Cycles until nothing is eligible, or the cap that was set by hand; drain after each."""
        shared = self._shared
        pool: WorkerPool | None = None
        running = Passes(self._upkeep(), clock=shared.clock, tell=shared.tell)
        running.start()
        stack.callback(lambda: running.stop(5.0))
        due = list(self._active)
        capped: set[str] = set()
        for round_ in range(_MOST_ROUNDS):
            if not due or shared.stop.asked.is_set():
                break
            again: list[ActiveSource] = []
            for source in due:
                if shared.stop.asked.is_set():
                    break
                ended = self._cycle_once(source, "startup" if round_ == 0 else "manual", capped)
                if ended is not None and self._wants_more(source, ended, capped):
                    again.append(source)
            if pool is None and not shared.stop.asked.is_set():
                pool = self._pool(stack, proven)
            if pool is not None:
                self._drain(pool)
            due = [source for source in again if self._eligible(source)] if pool is not None else []

    def _cycle_once(self, source: ActiveSource, trigger: str, capped: set[str]) -> CycleEnded | None:
        name = source.config.name
        while not self._shared.stop.asked.is_set():
            try:
                ended = self._cycle(source).run(trigger, admit_updates=name not in capped)
            except DatabaseUnavailable as error:
                self._shared.tell(Noted(level="warning", code="database_away", message=str(error)))
                self._shared.stop.asked.wait(1.0)
                continue
            self._shared.tell(ended)
            if ended.status != "skipped" and name in self._options.capped_by_hand:
                capped.add(name)
            return ended
        return None

    def _wants_more(self, source: ActiveSource, ended: CycleEnded, capped: set[str]) -> bool:
        """Whether another cycle of this source may admit something."""
        if ended.status == "skipped":
            return ended.reason == "backlog"
        config = source.config
        rescans = config.updated_rescan_enabled and config.updated_rescan_max_per_cycle > 0
        return ended.status != "failed" and rescans and config.name not in capped and ended.changed_waiting > 0

    def _eligible(self, source: ActiveSource) -> bool:
        """Whether a further cycle would have something to do: its last one was kept back, or changed targets wait."""
        last = self._shared.tally.cycles.get(source.config.name)
        if last is not None and last.status == "skipped":
            return True
        cooldown = timedelta(seconds=source.config.updated_rescan_cooldown_seconds)
        return bool(
            self._store.database.run(
                lambda conn: intake.count_changed_waiting(conn, source.source_id, cooldown=cooldown)
            )
        )

    def _drain(self, pool: WorkerPool) -> None:
        """Wait until nothing of these sources can be claimed and nobody holds a lease on them."""
        shared = self._shared
        names = {source.config.name for source in self._active}
        while not shared.stop.asked.wait(_DRAIN_TICK_SECONDS):
            if not pool.quiet:
                continue
            try:
                with self._store.database.connection() as conn:
                    held = [lease for lease in census.in_flight(conn) if lease.source in names]
                    waiting = sum(
                        cycles.backlog(conn, source.source_id)
                        for source in self._active
                        if not self._paused(conn, source)
                    )
            except Exception as error:  # noqa: BLE001 - away for a moment: the pool says so, this looks again
                shared.tell(Noted(level="debug", code="drain", message=type(error).__name__))
                continue
            if not held and not waiting:
                return
            if waiting > len(held):
                pool.wake()
            shared.stop.asked.wait(0.5)

    def _paused(self, conn: object, source: ActiveSource) -> bool:
        rows = queue_sources.list_sources(conn)  # type: ignore[arg-type]
        return any(row.source_id == source.source_id and row.paused for row in rows)

"""The whole runtime in one process: schema, scanners' canary, sources, passes, workers, pages; and its orderly end."""

import threading
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from ..ledger import server
from ..queue import census, cycles, intake
from ..queue import sources as queue_sources
from ..schema.clock import Clock, SystemClock
from ..schema.errors import DatabaseUnavailable, ResweepError, UsageFault
from .authority import Authority
from .config import Configuration
from .config_sources import SourceConfig
from .cycle import Cycle
from .events import CycleEnded, Event, Listener, Noted, to_all
from .housekeeping import housekeep
from .metrics import Metrics
from .passes import Pass, Passes
from .pool import make_pool, sweep
from .scanners import canary
from .schedule import STARTUP_SECONDS
from .summary import Summary, Tally, summarise
from .wiring import ActiveSource, Scanning, Store, activate, identity, open_scanning, open_store, settle_key
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


class StepFailed(ResweepError):
    """A step of the start failed; names the step."""


class Supervisor:
    """One runtime. ``run`` blocks until it is over."""

    def __init__(
        self,
        configuration: Configuration,
        options: Options,
        *,
        listeners: Sequence[Listener] = (),
        step: Callable[[str], None] = lambda _step: None,
        stop: Stop | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``step`` is told what the start is busy with; ``listeners`` what happens."""
        self._configuration = configuration
        self._options = options
        self._clock = clock or SystemClock()
        self._stop = stop or Stop()
        self._step = step
        self.tally = Tally()
        self.metrics = Metrics(self._clock)
        self._tell = to_all((self.tally, self.metrics, *listeners))
        self.worker = identity()

    def run(self) -> Summary | None:
        """Start, work until stopped (or, ``once``, until nothing is left), end in order; ``once`` gives a summary.

        Raises ``ResweepError`` whose text names the step that failed.
        """
        began = self._clock.monotonic()
        with ExitStack() as stack:
            store = stack.enter_context(self._opened_store())
            with _step("scanners", self._step, "preparing scanners"):
                scanning = stack.enter_context(open_scanning(self._configuration, clock=self._clock))
                settle_key(store.database, scanning.key, self._configuration)
            with _step("sources", self._step, "reading sources"):
                active = activate(self._configuration, self._options.sources, store, scanning)
            self.metrics.set_sources(active)
            self.metrics.read_queue(store.database)
            with store.database.connection() as conn:
                since = server.moment(conn)
            if self._options.web:
                self._serve(stack, store)
            ready = _Ready(self, store, scanning, active)
            # Discovery need not wait for the scanners' test, which takes half a minute on a new machine.
            proven = stack.enter_context(_beside(lambda: self._prove_scanners(scanning), begin=self._options.workers))
            if self._options.once:
                with ExitStack() as working:  # scans that still run end, or are given back, before they are summed up
                    ready.once(working, proven)
                return self._summary(store, active, since, began)
            ready.serve(stack, proven)
        return None

    # --- steps of the start ---

    @contextmanager
    def _opened_store(self) -> Generator[Store, None, None]:
        with _step("database", self._step, "reaching the database"):
            opened = open_store(self._configuration, role="runtime", schema="apply", tell=self._step)
            store = opened.__enter__()
        try:
            yield store
        finally:
            opened.__exit__(None, None, None)

    def _prove_scanners(self, scanning: Scanning) -> None:
        used = {name for source in self._options.sources for name in source.scanners}
        if self._options.all_targets:
            used |= set(self._configuration.settings.defaults.scanners or ("kingfisher",))
        with _step("canary", self._step, "testing scanners"):
            prove_scanners(scanning, used)

    def _serve(self, stack: ExitStack, store: Store) -> None:
        from .web.server import AddressTaken, serve  # noqa: PLC0415 - the web framework takes long to load

        with _step("web", self._step, "opening pages"):
            try:
                urls = stack.enter_context(serve(self._configuration, metrics=self.metrics, database=store.database))
            except AddressTaken as taken:
                # Nobody chose this address: another runtime on this machine has it.
                if ("web", "listen") in self._configuration.origins:
                    raise
                self.tell(Noted(level="warning", code="no_web", message=f"{taken}; going on without pages"))
                return
            for url in urls:
                self.tell(Noted(level="info", code="serving", message=f"serving {url}"))

    def _summary(self, store: Store, active: Sequence[ActiveSource], since: datetime, began: float) -> Summary:
        sources = [(source.source_id, source.config.name) for source in active]
        seconds = self._clock.monotonic() - began
        return store.database.run(
            lambda conn: summarise(conn, self.tally, sources=sources, seconds=seconds, since=since)
        )

    # --- what the parts use ---

    @property
    def configuration(self) -> Configuration:
        """What was configured."""
        return self._configuration

    @property
    def options(self) -> Options:
        """What this start does."""
        return self._options

    @property
    def clock(self) -> Clock:
        """Time."""
        return self._clock

    @property
    def stop(self) -> Stop:
        """How the end is asked for."""
        return self._stop

    def tell(self, event: Event) -> None:
        """Tell everybody who listens."""
        self._tell(event)


class _Ready:
    """The running part: made when every step of the start went well."""

    def __init__(
        self, supervisor: Supervisor, store: Store, scanning: Scanning, active: Sequence[ActiveSource]
    ) -> None:
        self._supervisor = supervisor
        self._store = store
        self._scanning = scanning
        self._active = active
        self._options = supervisor.options
        self._settings = supervisor.configuration.settings

    # --- parts ---

    def _pool(self, stack: ExitStack, proven: Callable[[], None]) -> WorkerPool | None:
        """Begin to scan, once the scanners have shown that they find something."""
        if not self._options.workers:
            return None
        proven()
        supervisor, workers = self._supervisor, self._settings.workers
        if (
            supervisor.stop.asked.is_set()
        ):  # the scanners' test takes a while: nothing is begun after the end was asked for
            return None
        pool = make_pool(
            supervisor.configuration,
            self._store.database,
            self._scanning,
            self._active,
            tell=supervisor.tell,
            worker=supervisor.worker,
            clock=supervisor.clock,
            only=self._only(),
        )
        supervisor.metrics.set_slots(workers.concurrency)
        pool.start()
        stack.callback(lambda: pool.stop(workers.grace_seconds, at_once=supervisor.stop.at_once))
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
            clock=self._supervisor.clock,
            fingerprints=self._fingerprints,
            stopping=self._supervisor.stop.asked.is_set,
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
        passes = [sweep(self._supervisor.configuration, database, self._supervisor.tell)]
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
        if embedded is not None and embedded.status().state == "stopped" and not self._supervisor.stop.asked.is_set():
            self._supervisor.tell(
                Noted(level="warning", code="server_died", message="the embedded PostgreSQL is down; starting it again")
            )
            embedded.start()
        return True

    # --- running on and on ---

    def serve(self, stack: ExitStack, proven: Callable[[], None]) -> None:
        """Work until the end is asked for."""
        supervisor = self._supervisor
        passes = self._upkeep()
        if self._options.scheduler:
            lead = Authority(self._store.database, tell=supervisor.tell, stopping=supervisor.stop.asked)
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
        running = Passes(passes, clock=supervisor.clock, tell=supervisor.tell)
        running.start()
        stack.callback(lambda: running.stop(5.0))
        self._pool(stack, proven)
        supervisor.tell(Noted(level="info", code="ready", message="ready"))
        supervisor.stop.asked.wait()
        supervisor.tell(Noted(level="info", code="stopping", message="stopping: no new scans, running ones may finish"))

    def _discover(self, cycle: Cycle, trigger: str) -> bool:
        ended = cycle.run(trigger)
        self._supervisor.tell(ended)
        # Single entries that cannot be read are no reason to ask the provider more often than it should be.
        return ended.status in {"success", "skipped"} or ended.reason == "stopped" or bool(ended.fault_count)

    # --- once ---

    def once(self, stack: ExitStack, proven: Callable[[], None]) -> None:
        """Cycles until nothing is eligible, or the cap that was set by hand; drain after each."""
        supervisor = self._supervisor
        pool: WorkerPool | None = None
        running = Passes(self._upkeep(), clock=supervisor.clock, tell=supervisor.tell)
        running.start()
        stack.callback(lambda: running.stop(5.0))
        due = list(self._active)
        capped: set[str] = set()
        for round_ in range(_MOST_ROUNDS):
            if not due or supervisor.stop.asked.is_set():
                break
            again: list[ActiveSource] = []
            for source in due:
                if supervisor.stop.asked.is_set():
                    break
                ended = self._cycle_once(source, "startup" if round_ == 0 else "manual", capped)
                if ended is not None and self._wants_more(source, ended, capped):
                    again.append(source)
            if pool is None and not supervisor.stop.asked.is_set():
                pool = self._pool(stack, proven)
            if pool is not None:
                self._drain(pool)
            due = [source for source in again if self._eligible(source)] if pool is not None else []

    def _cycle_once(self, source: ActiveSource, trigger: str, capped: set[str]) -> CycleEnded | None:
        name = source.config.name
        while not self._supervisor.stop.asked.is_set():
            try:
                ended = self._cycle(source).run(trigger, admit_updates=name not in capped)
            except DatabaseUnavailable as error:
                self._supervisor.tell(Noted(level="warning", code="database_away", message=str(error)))
                self._supervisor.stop.asked.wait(1.0)
                continue
            self._supervisor.tell(ended)
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
        last = self._supervisor.tally.cycles.get(source.config.name)
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
        supervisor = self._supervisor
        names = {source.config.name for source in self._active}
        while not supervisor.stop.asked.wait(_DRAIN_TICK_SECONDS):
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
                supervisor.tell(Noted(level="debug", code="drain", message=type(error).__name__))
                continue
            if not held and not waiting:
                return
            if waiting > len(held):
                pool.wake()
            supervisor.stop.asked.wait(0.5)

    def _paused(self, conn: object, source: ActiveSource) -> bool:
        rows = queue_sources.list_sources(conn)  # type: ignore[arg-type]
        return any(row.source_id == source.source_id and row.paused for row in rows)


def prove_scanners(scanning: Scanning, names: Collection[str]) -> None:
    """Let each scanner find the canary. Raises ``StepFailed`` with the reason for the first that does not."""
    wanted = [scanning.scanners[name] for name in sorted(names) if name in scanning.scanners]
    for result in canary.check(wanted, guard=scanning.guard, git=scanning.git, clock=scanning.clock):
        if result.fault is not None:
            raise StepFailed(str(result.fault)) from result.fault


@contextmanager
def _beside(work: Callable[[], None], *, begin: bool) -> Generator[Callable[[], None], None, None]:
    """Do ``work`` in a thread; gives a function that waits for it and raises what it raised."""
    if not begin:
        yield work
        return
    with ThreadPoolExecutor(1, thread_name_prefix="canary") as pool:
        done = pool.submit(work)
        yield done.result


@contextmanager
def _step(name: str, say: Callable[[str], None], words: str) -> Generator[None, None, None]:
    """One step of the start: said before, and named when it fails."""
    say(words)
    try:
        yield
    except (OSError, ResweepError) as error:
        if isinstance(error, ResweepError) and type(error) not in {ResweepError, DatabaseUnavailable}:
            raise
        message = f"step {name} failed: {error}"
        raise StepFailed(message) from error

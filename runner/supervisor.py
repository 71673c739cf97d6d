"""The whole runtime in one process: schema, scanners' canary, sources, passes, workers, pages; and its orderly end."""

import threading
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime

from ..ledger import server
from ..schema.clock import Clock, SystemClock
from ..schema.errors import DatabaseUnavailable, ResweepError
from .config import Configuration
from .events import Listener, Noted, to_all
from .metrics import Metrics
from .running import Options, Ready, Shared, Stop
from .scanners import canary
from .scanners.base import ScanInterrupted
from .summary import Summary, Tally, summarise
from .wiring import ActiveSource, Scanning, Store, activate, identity, open_scanning, open_store, settle_key


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
        self._step = step
        self.tally = Tally()
        self.metrics = Metrics(self._clock)
        self._shared = Shared(
            configuration=configuration,
            options=options,
            clock=self._clock,
            stop=stop or Stop(),
            tally=self.tally,
            metrics=self.metrics,
            tell=to_all((self.tally, self.metrics, *listeners)),
            worker=identity(),
        )

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
                active = activate(
                    self._configuration,
                    self._options.sources,
                    store,
                    scanning,
                    cancel=self._shared.stop.asked,
                )
            self.metrics.set_sources(active)
            self.metrics.read_queue(store.database)
            with store.database.connection() as conn:
                since = server.moment(conn)
            if self._options.web:
                self._serve(stack, store)
            ready = Ready(self._shared, store, scanning, active)
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
            prove_scanners(scanning, used, cancel=self._shared.stop.asked)

    def _serve(self, stack: ExitStack, store: Store) -> None:
        from .web.server import AddressTaken, serve  # noqa: PLC0415 - the web framework takes long to load

        with _step("web", self._step, "opening pages"):
            try:
                urls = stack.enter_context(serve(self._configuration, metrics=self.metrics, database=store.database))
            except AddressTaken as taken:
                # Nobody chose this address: another runtime on this machine has it.
                if ("web", "listen") in self._configuration.origins:
                    raise
                self._shared.tell(Noted(level="warning", code="no_web", message=f"{taken}; going on without pages"))
                return
            for url in urls:
                self._shared.tell(Noted(level="info", code="serving", message=f"serving {url}"))

    def _summary(self, store: Store, active: Sequence[ActiveSource], since: datetime, began: float) -> Summary:
        sources = [(source.source_id, source.config.name) for source in active]
        seconds = self._clock.monotonic() - began
        return store.database.run(
            lambda conn: summarise(conn, self.tally, sources=sources, seconds=seconds, since=since)
        )


def prove_scanners(scanning: Scanning, names: Collection[str], *, cancel: threading.Event) -> None:
    """Let each scanner find the canary; returns soon, with nothing proven, when ``cancel`` is set.

    Raises ``StepFailed`` with the reason for the first that does not.
    """
    wanted = [scanning.scanners[name] for name in sorted(names) if name in scanning.scanners]
    try:
        results = canary.check(wanted, guard=scanning.guard, git=scanning.git, clock=scanning.clock, cancel=cancel)
    except ScanInterrupted:
        return
    for result in results:
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

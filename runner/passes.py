"""Passes: what runs by itself again and again, each never beside itself, each with its backoff (D62 to D66)."""

import random as _random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from ..schema.clock import Clock
from ..schema.database import first_line, retryable
from .events import DatabaseAway, Listener, Noted
from .schedule import Past, next_at

_TICK_SECONDS = 0.2
_AT_ONCE = 4


@dataclass(slots=True, kw_only=True)
class Pass:
    """One thing that is done again and again.

    ``run`` gets the trigger (``startup``, ``schedule``, ``retry``) and says whether it went well. ``allowed``: whether
    this process may run it now (it leads, for example).
    """

    name: str
    interval_seconds: float
    run: Callable[[str], bool]
    startup_seconds: float = 0.0
    allowed: Callable[[], bool] = lambda: True
    past: Past = field(default_factory=Past)
    due_at: float | None = None
    running: Future[None] | None = None


class Passes:
    """Runs passes when they are due; ``run_once`` looks once and can be called alone."""

    def __init__(
        self, passes: list[Pass], *, clock: Clock, tell: Listener, random: Callable[[], float] = _random.random
    ) -> None:
        """Nothing runs before ``start``."""
        self._passes = passes
        self._clock = clock
        self._tell = tell
        self._random = random
        self._stopping = threading.Event()
        self._started_at = clock.monotonic()
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="pass")
        self._thread = threading.Thread(target=self._loop, name="passes", daemon=True)

    def start(self) -> None:
        """Begin to look what is due."""
        self._started_at = self._clock.monotonic()
        for each in self._passes:
            self._plan(each)
        self._thread.start()

    def run_once(self) -> list[str]:
        """Start what is due now; gives the names."""
        now = self._clock.monotonic()
        begun: list[str] = []
        for each in self._passes:
            if each.running is not None and not each.running.done():
                continue
            if each.due_at is None or each.due_at > now or not each.allowed():
                continue
            each.due_at = None
            each.running = self._pool.submit(self._run, each)
            begun.append(each.name)
        return begun

    def stop(self, seconds: float) -> None:
        """Begin nothing more; wait for what runs, but not for ever."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self._pool.shutdown(wait=False, cancel_futures=True)
        ends = self._clock.monotonic() + seconds
        for each in self._passes:
            while each.running is not None and not each.running.done() and self._clock.monotonic() < ends:
                self._clock.sleep(0.05)

    def _loop(self) -> None:
        while not self._stopping.wait(_TICK_SECONDS):
            self.run_once()

    def _run(self, each: Pass) -> None:
        trigger = "retry" if each.past.failures else "startup" if each.past.finished_at is None else "schedule"
        good = False
        try:
            good = each.run(trigger)
        except Exception as error:  # noqa: BLE001 - the outermost loop of a pass: it is tried again
            if retryable(error):
                self._tell(DatabaseAway(part=each.name, message=first_line(error)))
            else:
                message = f"{each.name}: {type(error).__name__}: {first_line(error)}; it is tried again"
                self._tell(Noted(level="error", code="internal", message=message))
        each.past = replace(
            each.past, finished_at=self._clock.monotonic(), failures=0 if good else each.past.failures + 1
        )
        self._plan(each)

    def _plan(self, each: Pass) -> None:
        each.due_at = next_at(
            each.past,
            interval_seconds=each.interval_seconds,
            started_at=self._started_at,
            startup_seconds=each.startup_seconds,
            random=self._random,
        )

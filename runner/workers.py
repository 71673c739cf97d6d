"""The worker pool of one process: claims at most its free slots, keeps every lease alive, hands every ending in once.

Four kinds of threads, none of which waits for another's database call:

* the dispatcher claims for free slots, and sleeps on LISTEN with a slow poll beside it;
* slots work on claims (``attempt.py``);
* the heartbeat renews all leases in one statement every quarter of the lease, on its own connection; what is not
  renewed is lost, and its scanner is told to stop at once;
* the watchdog knows only this process's monotonic clock: a lease that could not be renewed for two thirds of its
  length has its scanner stopped, before anybody else can start one;
* the settler writes endings in batches, and tries again while the database is away.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from ..queue import leases, wakeups
from ..schema.clock import Clock
from ..schema.database import Connection, Database, first_line, retryable
from ..schema.records import Claim, Coverage, WorkerIdentity
from .attempt import Verdict, crashed, released
from .events import Claimed, DatabaseAway, DatabaseBack, LeaseWasLost, Listener, Noted, ScanStarted
from .scanners.base import ScanInterrupted
from .settle import Ended, Settler

_RENEWALS_A_LEASE = 4
_WATCHDOG_SHARE = 2 / 3
_POLL_SECONDS = 5.0
_NAP_SECONDS = 0.5
_PAUSES = (0.25, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """How a pool works (``workers.*``)."""

    slots: int
    lease: timedelta
    max_attempts: int
    max_in_progress: int | None = None


class Work(Protocol):
    """How one claim is worked on (``attempt.Attempts``)."""

    def run(self, claim: Claim, coverage: Sequence[Coverage], cancel: threading.Event) -> Verdict:
        """Work until it is done; raises ``ScanInterrupted`` soon after ``cancel`` is set."""
        ...


@dataclass(slots=True, kw_only=True)
class _Held:
    """A lease of this process. ``renewed_at``: monotonic, from before the renewing statement was sent."""

    claim: Claim
    renewed_at: float
    cancel: threading.Event = field(default_factory=threading.Event)
    why: str | None = None  # taken, unrenewed, interrupted: why it was cancelled


class WorkerPool:
    """Made once per process; ``start``, then ``stop``. All methods may be called from any thread."""

    def __init__(
        self,
        database: Database,
        attempts: Work,
        worker: WorkerIdentity,
        settings: PoolSettings,
        *,
        tell: Listener,
        clock: Clock,
        sources: Callable[[], Sequence[int] | None] = lambda: None,
    ) -> None:
        """``sources`` gives the ids to claim from, None = all of them."""
        self._database = database
        self._attempts = attempts
        self._worker = worker
        self._settings = settings
        self._tell = tell
        self._clock = clock
        self._sources = sources
        self._held: dict[tuple[int, int], _Held] = {}
        self._lock = threading.Condition()
        self._free = settings.slots
        self._stopping = threading.Event()
        self._closed = threading.Event()
        self._empty_since: float | None = None  # a claim made after everything was settled gave nothing
        self._slots = ThreadPoolExecutor(settings.slots, thread_name_prefix="slot")
        self._settler = Settler(
            database, settings.max_attempts, tell=tell, clock=clock, settled=self._let_go, stopping=self._closed
        )
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (
                ("dispatcher", self._dispatch),
                ("heartbeat", self._beat),
                ("watchdog", self._watch),
            )
        ]

    # --- what others call ---

    def start(self) -> None:
        """Say who works here, then begin to claim."""
        self._database.run(lambda conn: leases.register_worker(conn, self._worker, slots=self._settings.slots))
        self._settler.start()
        for thread in self._threads:
            thread.start()

    @property
    def busy(self) -> list[Claim]:
        """What is being worked on or settled now."""
        with self._lock:
            return [held.claim for held in self._held.values()]

    @property
    def quiet(self) -> bool:
        """Nothing is held, and the last claim after that found nothing."""
        with self._lock:
            return not self._held and self._empty_since is not None

    def wake(self) -> None:
        """Look for work now."""
        with self._lock:
            self._empty_since = None
            self._lock.notify_all()

    def stop(self, grace_seconds: float, *, at_once: threading.Event | None = None) -> None:
        """Claim nothing more; let scans finish within ``grace_seconds``, give the rest back with no attempt counted.

        ``at_once`` cuts the grace short (a second signal).
        """
        self._stopping.set()
        self.wake()
        self._wait_until_settled(grace_seconds, at_once)
        with self._lock:
            left = [held for held in self._held.values() if not held.cancel.is_set()]
            for held in left:
                held.why = "interrupted"
                held.cancel.set()
        if left:
            self._tell(Noted(level="info", code="interrupted", message=f"{len(left)} running scans are given back"))
        self._wait_until_settled(15.0, None)
        self._closed.set()
        with self._lock:
            self._lock.notify_all()
        self._slots.shutdown(wait=True, cancel_futures=True)
        self._settler.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(10.0)
        with suppress(Exception):  # a worker that says nothing is known by its age as well
            self._database.run(lambda conn: leases.stop_worker(conn, self._worker.uuid), attempts=1)

    def _wait_until_settled(self, seconds: float, at_once: threading.Event | None) -> None:
        ends = self._clock.monotonic() + seconds
        with self._lock:
            while self._held and self._clock.monotonic() < ends:
                if at_once is not None and at_once.is_set():
                    return
                self._lock.wait(0.1)

    # --- the dispatcher ---

    def _dispatch(self) -> None:
        """Claim for free slots; the outermost loop of its thread."""
        water = leases.LowWater()
        away = _Away("claiming", self._tell, self._clock)
        direct: Connection | None = None
        while not self._stopping.is_set():
            room = self._wait_for_room()
            if self._stopping.is_set():
                break
            try:
                claims = self._claim(room, water)
                away.over()
                if not claims:
                    if direct is None or direct.closed:
                        direct = self._database.direct()  # kept at once: whatever fails from here on, it is closed
                        wakeups.listen(direct)
                    self._sleep(direct, room, water)
            except Exception as error:  # noqa: BLE001 - the outermost loop: one fault must not end the worker
                _closed(direct)
                direct = None
                away.begins(error)
                self._stopping.wait(away.pause())
        _closed(direct)

    def _wait_for_room(self) -> int:
        with self._lock:
            while self._free < 1 and not self._stopping.is_set():
                self._lock.wait(1.0)
            return self._free

    def _claim(self, room: int, water: leases.LowWater) -> list[Claim]:
        settled = self._nothing_held()
        asked_at = self._clock.monotonic()
        sources = self._sources()
        with self._database.connection() as conn:
            claims = leases.claim(
                conn,
                self._worker.uuid,
                sources=sources,
                limit=room,
                lease=self._settings.lease,
                low_water=water,
                max_in_progress=self._settings.max_in_progress,
            )
            covered = leases.coverage(conn, [claim.target_id for claim in claims])
        if not claims:
            if settled:
                with self._lock:
                    self._empty_since = asked_at
            return claims
        with self._lock:
            self._empty_since = None
            self._free -= len(claims)
            held = [_Held(claim=claim, renewed_at=asked_at) for claim in claims]
            for each in held:
                self._held[_key(each.claim)] = each
        self._tell(Claimed(claims=tuple(claims)))
        for each in held:
            self._slots.submit(self._work, each, covered.get(each.claim.target_id, []))
        return claims

    def _nothing_held(self) -> bool:
        with self._lock:
            return not self._held

    def _sleep(self, direct: Connection, room: int, water: leases.LowWater) -> None:
        """Sleep until woken, until a slot ends, or until the poll; look once more after saying so (no lost wake-up)."""
        wakeups.fall_asleep(direct, self._worker.uuid, timedelta(seconds=_POLL_SECONDS))
        if not self._claim(room, water):
            ends = self._clock.monotonic() + _POLL_SECONDS
            while self._clock.monotonic() < ends and not self._stopping.is_set():
                if wakeups.sleep(direct, timedelta(seconds=_NAP_SECONDS)) or not self._asleep():
                    break
        wakeups.wake_up(direct, self._worker.uuid)

    def _asleep(self) -> bool:
        """Whether nothing happened since the last empty claim that makes another one worth while."""
        with self._lock:
            return self._empty_since is not None or bool(self._held)

    # --- slots ---

    def _work(self, held: _Held, coverage: Sequence[Coverage]) -> None:
        claim = held.claim
        started = self._clock.monotonic()
        self._tell(ScanStarted(claim=claim))
        verdict: Verdict | None
        try:
            verdict = self._attempts.run(claim, coverage, held.cancel)
        except ScanInterrupted:
            verdict = None if held.why == "taken" else released(claim, held.why or "interrupted")
        except Exception as error:  # noqa: BLE001 - the outermost loop of a slot: one target cannot stop the rest
            self._tell(
                Noted(
                    level="error",
                    code="internal",
                    message=f"{claim.name}: {type(error).__name__}: {error}; this is a fault of resweep",
                )
            )
            verdict = crashed(claim, error)
        with self._lock:
            self._free += 1
            self._lock.notify_all()
        self._settler.put(Ended(claim=claim, verdict=verdict, seconds=self._clock.monotonic() - started))

    def _let_go(self, claims: Sequence[Claim]) -> None:
        """These endings are written, or lost: the leases are no longer ours to renew."""
        with self._lock:
            for claim in claims:
                self._held.pop(_key(claim), None)
            self._empty_since = None
            self._lock.notify_all()

    # --- leases ---

    def _beat(self) -> None:
        """Renew every lease each quarter of its length."""
        every = self._settings.lease.total_seconds() / _RENEWALS_A_LEASE
        away = _Away("renewing leases", self._tell, self._clock)
        direct: Connection | None = None
        while not self._closed.wait(every if away.good else min(every, 1.0)):
            with self._lock:
                held = list(self._held)
            sent_at = self._clock.monotonic()
            try:
                if direct is None or direct.closed:
                    direct = self._database.direct()
                    direct.execute(_bounded(every).encode())
                kept = leases.heartbeat(direct, self._worker.uuid, held, self._settings.lease)
                away.over()
            except Exception as error:  # noqa: BLE001 - the outermost loop: the watchdog acts while this cannot
                _closed(direct)
                direct = None
                away.begins(error)
                continue
            self._renewed(held, kept, sent_at)
        _closed(direct)

    def _renewed(self, asked: Sequence[tuple[int, int]], kept: set[tuple[int, int]], sent_at: float) -> None:
        lost: list[_Held] = []
        with self._lock:
            for key in asked:
                held = self._held.get(key)
                if held is None:
                    continue
                if key in kept:
                    held.renewed_at = max(held.renewed_at, sent_at)
                elif held.why != "taken" and not self._settler.has(key):
                    lost.append(held)
                    held.why = "taken"
                    held.cancel.set()
        for held in lost:
            self._tell(LeaseWasLost(claim=held.claim, why="taken"))

    def _watch(self) -> None:
        """Stop scanners whose lease was not renewed for two thirds of its length, by this machine's clock alone."""
        limit = self._settings.lease.total_seconds() * _WATCHDOG_SHARE
        tick = min(0.25, limit / 10)
        while not self._closed.wait(tick):
            now = self._clock.monotonic()
            late: list[_Held] = []
            with self._lock:
                for held in self._held.values():
                    if now - held.renewed_at > limit and not held.cancel.is_set():
                        held.why = "unrenewed"
                        held.cancel.set()
                        late.append(held)
            for held in late:
                self._tell(LeaseWasLost(claim=held.claim, why="unrenewed"))


class _Away:
    """Says once that the database is away, and once that it is back."""

    def __init__(self, part: str, tell: Listener, clock: Clock) -> None:
        self._part = part
        self._tell = tell
        self._clock = clock
        self._since: float | None = None
        self._tries = 0

    @property
    def good(self) -> bool:
        return self._since is None

    def begins(self, error: Exception) -> None:
        self._tries += 1
        if self._since is not None:
            return
        self._since = self._clock.monotonic()
        if retryable(error):
            self._tell(DatabaseAway(part=self._part, message=first_line(error)))
        else:
            message = f"{self._part}: {type(error).__name__}: {first_line(error)}; it is tried again"
            self._tell(Noted(level="error", code="internal", message=message))

    def over(self) -> None:
        if self._since is not None:
            self._tell(DatabaseBack(part=self._part, seconds=self._clock.monotonic() - self._since))
        self._since, self._tries = None, 0

    def pause(self) -> float:
        return _PAUSES[min(self._tries, len(_PAUSES)) - 1]


def _key(claim: Claim) -> tuple[int, int]:
    return claim.target_id, claim.lease_token


def _closed(direct: Connection | None) -> None:
    if direct is not None:
        with suppress(Exception):  # it may be dead already
            direct.close()


def _bounded(seconds: float) -> str:
    """A renewal that takes longer than its interval is worth nothing: the next one must be tried."""
    return f"SET statement_timeout = {max(100, int(seconds * 1000))}"

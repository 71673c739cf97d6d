"""Awaiting targets that were asked for, whoever scans them; and noticing when nobody does."""

import socket
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import psutil

from ...queue import census
from ...queue import sources as queue_sources
from ...queue.census import Row
from ...schema.clock import Clock, SystemClock
from ...schema.database import Database
from ...schema.records import State

_TICK_SECONDS = 0.25
_LOOK_SECONDS = 2.0
_IDLE_SECONDS = 15.0
_BATCH = 50
_SETTLED = frozenset({State.DONE, State.FAILED, State.DEFERRED, State.UNRESOLVED, State.RETIRED})


class Waiting:
    """Waits for targets. ``instead`` is called once when others were to scan them and nobody does (any more)."""

    def __init__(
        self,
        database: Database,
        ids: Sequence[int],
        stop: threading.Event,
        *,
        worker_seen: timedelta,
        clock: Clock | None = None,
    ) -> None:
        """``worker_seen``: how old the last sign of a worker that lives may be."""
        self._database = database
        self._left = list(ids)
        self._stop = stop
        self._worker_seen = worker_seen
        self._clock = clock or SystemClock()
        self._moved_at = self._clock.monotonic()
        self._looked_at = self._moved_at
        self.instead: Callable[[], None] | None = None

    def wait(self, timeout: timedelta | None) -> bool:
        """Wait until every target is settled, or ``stop`` is set; False when time was up first."""
        ends = self._clock.monotonic() + timeout.total_seconds() if timeout is not None else float("inf")
        while self._look():
            if self._clock.monotonic() >= ends:
                return False
            if self._stop.wait(_TICK_SECONDS):
                break
            self._see_to_it()
        return True

    def nobody_works(self) -> bool:
        """Whether no worker process gave a sign of life lately. One of this machine must be among its processes."""
        return not any(_lives(worker) for worker in self._workers())

    def _look(self) -> bool:
        """Whether some target is not settled yet. Asks for the first of them only: the rest comes when these are."""
        with self._database.connection() as conn:
            paused = {row.name for row in queue_sources.list_sources(conn) if row.paused}
            while self._left:
                part = self._left[:_BATCH]
                rows = [census.get(conn, target_id) for target_id in part]
                open_ids = [target_id for target_id, row in zip(part, rows, strict=True) if not _settled(row, paused)]
                if len(open_ids) < len(part) or any(row and row.state is State.IN_PROGRESS for row in rows):
                    self._moved_at = self._clock.monotonic()
                self._left[: len(part)] = open_ids
                if open_ids:
                    return True
        return False

    def _see_to_it(self) -> None:
        """Bring workers when there are none, or when those that have room take nothing of ours."""
        now = self._clock.monotonic()
        if self.instead is None or now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        living = [worker for worker in self._workers() if _lives(worker)]
        room = any(int(worker["leases"]) < int(worker["slots"]) for worker in living)
        if not living or (room and now - self._moved_at > _IDLE_SECONDS):
            bring, self.instead = self.instead, None
            bring()

    def _workers(self) -> list[dict[str, Any]]:
        with self._database.connection() as conn:
            return census.workers(conn, seen_within=self._worker_seen)


def _lives(worker: dict[str, Any]) -> bool:
    if worker.get("stopped_at") is not None:
        return False
    if worker["host"] != socket.gethostname()[:200]:
        return True
    return psutil.pid_exists(int(worker["pid"]))


def _settled(row: Row | None, paused: set[str]) -> bool:
    """Done with no request owed, or nothing that comes of itself soon: failed, put off, backing off, source paused."""
    if row is None:
        return True
    if row.state in _SETTLED and not (row.state is State.DONE and row.request_owed):
        return True
    return row.state is State.PENDING and (row.attempts > 0 or row.source in paused)

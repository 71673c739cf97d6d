"""Handing endings in: completions, failures, deferrals and releases, in batches, each kind one transaction.

While the database is away everything is kept and tried again: a result is never thrown away because its lease might
be over; the token decides (queue.md, "Claiming"). An answer that was lost on its way is looked up in the history.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..queue import census, outcomes
from ..queue import sources as queue_sources
from ..queue.outcomes import Deferral, Failure, Release
from ..schema.clock import Clock
from ..schema.database import Connection, Database, first_line, retryable
from ..schema.records import Claim, Completion, Settled, State
from .attempt import Verdict, crashed
from .events import DatabaseAway, DatabaseBack, Listener, ScanEnded

BATCH = 100
_PAUSES = (0.25, 0.5, 1.0, 2.0, 5.0)
_WORDS = {Completion: "completed", Failure: "failed", Deferral: "deferred", Release: "released"}

E = TypeVar("E", Completion, Failure, Deferral, Release)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A claim whose work is over. ``verdict`` None: the lease was taken, there is nothing to hand in."""

    claim: Claim
    verdict: Verdict | None
    seconds: float


class Settler:
    """One thread that writes what slots hand in."""

    def __init__(
        self,
        database: Database,
        max_attempts: int,
        *,
        tell: Listener,
        clock: Clock,
        settled: Callable[[Sequence[Claim]], None],
        stopping: threading.Event,
    ) -> None:
        """``settled`` is told which claims are written or lost; ``stopping`` ends the retries of an absent database."""
        self._database = database
        self._max_attempts = max_attempts
        self._tell = tell
        self._clock = clock
        self._settled = settled
        self._stopping = stopping
        self._waiting: deque[Ended] = deque()
        self._writing: set[tuple[int, int]] = set()
        self._more = threading.Condition()
        self._over = False
        self._faulty: set[str] = set()  # sources with faults noted: the next good scan forgets them
        self._away_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="settler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def put(self, ended: Ended) -> None:
        """Hand one ending in."""
        with self._more:
            self._waiting.append(ended)
            self._more.notify()

    def has(self, key: tuple[int, int]) -> bool:
        """Whether this claim's ending is being written now: then a heartbeat that misses it means nothing."""
        with self._more:
            return key in self._writing

    def stop(self) -> None:
        """Write what was handed in, then end."""
        with self._more:
            self._over = True
            self._more.notify()
        if self._thread.ident is not None:
            self._thread.join(30.0)

    def _run(self) -> None:
        while True:
            with self._more:
                while not self._waiting and not self._over:
                    self._more.wait()
                if not self._waiting:
                    return
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                self._writing = {_key(ended.claim) for ended in batch}
            try:
                self._write_all(batch)
            except Exception as error:  # noqa: BLE001 - the outermost loop: what could not be written is lost, and said
                self._say_away(error)
            finally:
                self._settled([ended.claim for ended in batch])
                with self._more:
                    self._writing = set()

    def _write_all(self, batch: Sequence[Ended]) -> None:
        for ended in batch:
            if ended.verdict is None:
                self._tell(_event(ended, None, None))
        for kind in (Completion, Failure, Deferral, Release):
            part = [each for each in batch if each.verdict is not None and type(each.verdict.ending) is kind]
            if part:
                self._write(part)
        self._note_sources(batch)

    def _write(self, part: Sequence[Ended]) -> None:
        """Write endings of one kind; when a batch cannot be stored, one by one, so that one cannot stop the rest."""
        try:
            answers = self._try(part)
        except Exception as error:
            if retryable(error):
                raise
            if len(part) > 1:
                for each in part:
                    self._write([each])
                return
            ended = part[0]
            if ended.verdict is None or not isinstance(ended.verdict.ending, Completion):
                raise
            self._write([Ended(claim=ended.claim, verdict=crashed(ended.claim, error), seconds=ended.seconds)])
            return
        for ended, answer in zip(part, answers, strict=True):
            self._tell(_event(ended, ended.verdict, answer))

    def _try(self, part: Sequence[Ended]) -> list[Settled]:
        """One transaction, again until it is known to be written, or until this process ends without a database."""
        unsure = False
        tries = 0
        while True:
            try:
                answers = self._database.run(lambda conn: self._hand_in(conn, part), attempts=1)
                if unsure:
                    answers = self._database.run(lambda conn: _look_up(conn, part, answers), attempts=2)  # noqa: B023 - called at once
            except Exception as error:
                if not retryable(error) or (self._stopping.is_set() and tries >= len(_PAUSES)):
                    raise
                self._say_away(error)
                unsure = True
                self._stopping.wait(_PAUSES[min(tries, len(_PAUSES) - 1)])
                tries += 1
            else:
                self._say_back()
                return answers

    def _hand_in(self, conn: Connection, part: Sequence[Ended]) -> list[Settled]:
        endings = [each.verdict.ending for each in part if each.verdict is not None]
        attempts = [each.claim.attempts for each in part]
        first = endings[0]
        if isinstance(first, Completion):
            handed = _all(endings, Completion)
            return outcomes.complete(conn, handed, max_attempts=self._max_attempts, attempts=attempts)
        if isinstance(first, Failure):
            return outcomes.fail(conn, _all(endings, Failure), max_attempts=self._max_attempts)
        if isinstance(first, Deferral):
            return outcomes.defer(conn, _all(endings, Deferral))
        return outcomes.release(conn, _all(endings, Release))

    def _note_sources(self, batch: Sequence[Ended]) -> None:
        """Count providers' faults on their sources; a scan that reached its repository forgets them."""
        faults = {
            each.claim.source: each.verdict.fault for each in batch if each.verdict is not None and each.verdict.fault
        }
        good = {
            each.claim.source
            for each in batch
            if each.verdict is not None and isinstance(each.verdict.ending, Completion)
        }
        wanted = {name: fault for name, fault in faults.items() if name not in good}
        forgive = self._faulty & good
        if not wanted and not forgive:
            return

        def note(conn: Connection) -> None:
            for name, fault in sorted(wanted.items()):
                source_id = queue_sources.find(conn, name)
                if source_id is not None:
                    queue_sources.note_fault(conn, source_id, code=fault.code, message=str(fault))
            for name in sorted(forgive):
                source_id = queue_sources.find(conn, name)
                if source_id is not None:
                    queue_sources.note_success(conn, source_id)

        self._database.run(note)
        self._faulty = (self._faulty | set(wanted)) - forgive

    def _say_away(self, error: Exception) -> None:
        if self._away_since is None:
            self._away_since = self._clock.monotonic()
            self._tell(DatabaseAway(part="handing results in", message=first_line(error)))

    def _say_back(self) -> None:
        if self._away_since is not None:
            seconds = self._clock.monotonic() - self._away_since
            self._away_since = None
            self._tell(DatabaseBack(part="handing results in", seconds=seconds))


def _all(endings: Sequence[object], kind: type[E]) -> list[E]:
    return [each for each in endings if isinstance(each, kind)]


def _look_up(conn: Connection, part: Sequence[Ended], answers: Sequence[Settled]) -> list[Settled]:
    """After an answer was lost: what the history has under our token was taken in the first time."""
    found: list[Settled] = []
    for ended, answer in zip(part, answers, strict=True):
        if not answer.accepted:
            past = census.history(conn, answer.target_id, limit=1, before=answer.lease_token + 1)
            if past and past[0].lease_token == answer.lease_token and past[0].outcome not in {"expired", "unresolved"}:
                row = census.get(conn, answer.target_id)
                found.append(
                    Settled(
                        target_id=answer.target_id,
                        lease_token=answer.lease_token,
                        accepted=True,
                        state=row.state if row else State.DONE,
                    )
                )
                continue
        del ended
        found.append(answer)
    return found


def _event(ended: Ended, verdict: Verdict | None, answer: Settled | None) -> ScanEnded:
    return ScanEnded(
        claim=ended.claim,
        ending=_WORDS[type(verdict.ending)] if verdict else "released",
        accepted=bool(answer and answer.accepted),
        state=answer.state if answer else None,
        seconds=ended.seconds,
        reports=verdict.reports if verdict else (),
        code=verdict.code if verdict else "lease_lost",
        message=verdict.message if verdict else None,
    )


def _key(claim: Claim) -> tuple[int, int]:
    return claim.target_id, claim.lease_token

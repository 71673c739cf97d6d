"""How a figure is measured: interleaved repetitions, medians, and only ratios inside one run.

Such machines are noisy, so the sides of a ratio take turns: one repetition of each, then the next. WAL is read from the
write position after a checkpoint, statements from ``pg_stat_statements``, dead versions from all tables' statistics.
"""

import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg

Watch = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Cost:
    """What a stretch of work took: seconds, and the database's own counts."""

    items: int = 0
    seconds: float = 0.0
    wal_bytes: int = 0
    dead_rows: int = 0
    statements: int = 0

    @property
    def rate(self) -> float:
        """Items a second."""
        return self.items / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One figure: its number in ``docs/performance.md``, the value and the bounds it is held to."""

    number: str
    what: str
    value: float
    floor: float
    goal: float
    more_is_better: bool
    unit: str = ""
    detail: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def verdict(self) -> str:
        """``goal``, ``floor`` or ``BELOW``."""
        if self._reaches(self.goal):
            return "goal"
        return "floor" if self._reaches(self.floor) else "BELOW"

    def _reaches(self, bound: float) -> bool:
        return self.value >= bound if self.more_is_better else self.value <= bound


@contextmanager
def counted(watch: Watch, items: int) -> Generator[Cost, None, None]:
    """Measure what happens inside; ``watch`` is an autocommit connection that does nothing else meanwhile."""
    cost = Cost(items=items)
    watch.execute("CHECKPOINT")
    before = _counters(watch)
    started = time.perf_counter()
    yield cost
    cost.seconds = time.perf_counter() - started
    after = _counters(watch)
    cost.wal_bytes = after[0] - before[0]
    cost.dead_rows = after[1] - before[1]
    cost.statements = after[2] - before[2]
    if after[3] != before[3]:
        message = (
            "a checkpoint fell into the measurement: its full-page images would be counted as WAL; raise max_wal_size"
        )
        raise RuntimeError(message)


def _counters(watch: Watch) -> tuple[int, int, int, str]:
    """WAL written, rows made dead, statements run, last checkpoint."""
    # Other sessions report their statistics when idle for a second or when they end.
    watch.execute("SELECT pg_stat_clear_snapshot()")
    row = watch.execute(
        """
        SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint,
               (SELECT coalesce(sum(n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables)::bigint,
               (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query !~ 'pg_stat_|CHECKPOINT')::bigint,
               (SELECT redo_lsn::text FROM pg_control_checkpoint())
        """
    ).fetchone()
    if row is None:  # pragma: no cover - a SELECT without FROM always has a row
        raise LookupError
    return row[0], row[1], row[2], row[3]


def settle(watch: Watch) -> None:
    """Wait until sessions that ended have reported their statistics."""
    time.sleep(0.3)
    watch.execute("SELECT pg_stat_force_next_flush()")


def interleave(sides: Mapping[str, Callable[[int], T]], repetitions: int) -> dict[str, list[T]]:
    """Run every side once per repetition, in turn; the callables get the repetition's number."""
    seen: dict[str, list[T]] = {name: [] for name in sides}
    order = list(sides.items())
    for repetition in range(repetitions):
        for name, side in order if repetition % 2 == 0 else reversed(order):
            seen[name].append(side(repetition))
    return seen


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of all lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def ratio(upper: Sequence[float], lower: Sequence[float]) -> float:
    """Median of the ratios of the repetitions: both sides of each ran right after one another."""
    return median([one / other for one, other in zip(upper, lower, strict=True)])

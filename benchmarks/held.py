"""Figure 13: claims while one snapshot is held open, when dead index entries can't be cleaned away."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg

from resweep.queue.leases import LowWater, claim
from resweep.queue.outcomes import complete
from resweep.schema.records import Completion, ScanOutcome, ScanReport

from .measure import Result, interleave, median, quantile
from .run import Run
from .table import add_source, fill, tidy

FIGURES = frozenset({"13"})
_BATCH = 10
_LEASE = timedelta(seconds=60)
_NOTHING_NEW = ScanReport(scanner="kingfisher", outcome=ScanOutcome.UNCHANGED, complete=True, coverage=None)
Session = psycopg.Connection[Any]


def measure(run: Run) -> Iterator[Result]:
    """Figure 13: p99 over the last half of the scans, when the dead entries have piled up."""
    scans = 2_000 if run.quick else 20_000
    seen = interleave(
        {"held": lambda _: _p99(run, scans, held=True), "free": lambda _: _p99(run, scans, held=False)},
        run.repetitions,
    )
    yield Result(
        number="13",
        what=f"claim p99, a snapshot held through {scans:,} scans ÷ without",
        value=median([one / other for one, other in zip(seen["held"], seen["free"], strict=True)]),
        floor=3.0,
        goal=1.5,
        more_is_better=False,
        detail={"held, p99 ms": median(seen["held"]) * 1000, "free, p99 ms": median(seen["free"]) * 1000},
    )


def _p99(run: Run, scans: int, *, held: bool) -> float:
    with (
        run.server.database("held") as conninfo,
        psycopg.connect(conninfo, autocommit=True) as conn,
        psycopg.connect(conninfo) as reader,
    ):
        fill(conn, source_id=add_source(conn), first=1, count=scans + 1_000, state="waiting")
        tidy(conn)
        if held:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM source")
        times = _scan(conn, scans)
        return quantile(times[len(times) // 2 :], 0.99)


def _scan(conn: Session, scans: int) -> list[float]:
    worker, low_water, times = uuid4(), LowWater(), list[float]()
    for _ in range(scans // _BATCH):
        started = time.perf_counter()
        with conn.transaction():
            taken = claim(conn, worker, sources=None, limit=_BATCH, lease=_LEASE, low_water=low_water)
        times.append(time.perf_counter() - started)
        if len(taken) != _BATCH:
            message = f"a claim brought {len(taken)} of {_BATCH}"
            raise RuntimeError(message)
        done = [
            Completion(target_id=one.target_id, lease_token=one.lease_token, reports=(_NOTHING_NEW,)) for one in taken
        ]
        with conn.transaction():
            complete(conn, done)
    return times

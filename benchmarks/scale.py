"""Figures 8 and 9: what a claim and a requeue cost as the table grows to ten million targets."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg

from resweep.queue.intake import requeue_changed
from resweep.queue.leases import claim
from resweep.queue.outcomes import complete
from resweep.schema.records import Completion, ScanOutcome, ScanReport

from .measure import Result, median, quantile
from .run import Run
from .table import add_source, fill, tidy

FIGURES = frozenset({"8", "9"})
_BATCH = 100
_ROUND = 25  # claims of one size before the next size takes its turn
_LEASE = timedelta(seconds=60)
_REQUEUE = 1_000
_CHANGED_EVERY = 100  # of the finished targets: each lies in a page of its own
_NOTHING_NEW = ScanReport(scanner="kingfisher", outcome=ScanOutcome.UNCHANGED, complete=True, coverage=None)
Session = psycopg.Connection[Any]


@dataclass(slots=True, kw_only=True)
class Table:
    """One database of a size, with the number of the next target to add."""

    conn: Session
    source: int
    next_id: int
    requeued: list[int] = field(default_factory=list[int])


def measure(run: Run) -> Iterator[Result]:
    """Figures 8 and 9."""
    small, middle, large = (1_000, 10_000, 100_000) if run.quick else (10_000, 1_000_000, 10_000_000)
    if "8" in run.only:
        for kind in ("waiting", "done"):
            yield from _claims(run, kind, (small, middle, large))
    if "9" in run.only:
        yield _requeues(run, large // 100, large)


def _claims(run: Run, kind: str, sizes: Sequence[int]) -> Iterator[Result]:
    with ExitStack() as stack:
        tables = {size: _table(run, stack, kind, size) for size in sizes}
        seen: dict[int, list[float]] = {size: [] for size in sizes}
        rounds = 8 if run.quick else 40
        for turn in range(-2, rounds):  # the first two warm the caches and the plans
            for size, table in tables.items():
                times = _claim_round(table, kind)
                if turn >= 0:
                    seen[size] += times
    told = {f"p99 at {size:,}, ms": quantile(times, 0.99) * 1000 for size, times in seen.items()}
    told |= {f"p50 at {size:,}, ms": median(times) * 1000 for size, times in seen.items()}
    base = quantile(seen[sizes[0]], 0.99)
    for size, floor, goal in ((sizes[1], 1.5, 1.2), (sizes[2], 2.0, 1.5)):
        yield Result(
            number="8",
            what=f"claim p99 of 100, {size:,} {kind} ÷ {sizes[0]:,}",
            value=quantile(seen[size], 0.99) / base,
            floor=floor,
            goal=goal,
            more_is_better=False,
            detail=told,
        )


def _claim_round(table: Table, kind: str) -> list[float]:
    """Times of some claims, each followed by its completion; the waiting ones taken are replaced."""
    times: list[float] = []
    worker = uuid4()
    fill(table.conn, source_id=table.source, first=table.next_id, count=_ROUND * _BATCH, state="waiting")
    table.next_id += _ROUND * _BATCH
    for _ in range(_ROUND):
        started = time.perf_counter()
        with table.conn.transaction():
            held = claim(table.conn, worker, sources=None, limit=_BATCH, lease=_LEASE)
        times.append(time.perf_counter() - started)
        if len(held) != _BATCH:
            message = f"a claim brought {len(held)} of {_BATCH} ({kind})"
            raise RuntimeError(message)
        done = [
            Completion(target_id=one.target_id, lease_token=one.lease_token, reports=(_NOTHING_NEW,)) for one in held
        ]
        with table.conn.transaction():
            complete(table.conn, done)
    return times


def _requeues(run: Run, small: int, large: int) -> Result:
    """The same thousand rows, one a page, at both sizes: put back between the turns, a checkpoint before each."""
    turns = 5 if run.quick else 15
    with ExitStack() as stack:
        tables = {size: _table(run, stack, "done", size) for size in (small, large)}
        seen: dict[int, list[float]] = {small: [], large: []}
        limit = min(_REQUEUE, small // _CHANGED_EVERY)
        for turn in range(-2, turns):
            for size, table in tables.items():
                table.conn.execute("UPDATE target_hot SET state = 'done' WHERE id = ANY (%s)", (table.requeued,))
                table.conn.execute("CHECKPOINT")
                started = time.perf_counter()
                with table.conn.transaction():
                    count = requeue_changed(table.conn, table.source, limit=limit, cooldown=timedelta(hours=6))
                if turn >= 0:
                    seen[size].append(time.perf_counter() - started)
                if count != limit:
                    message = f"requeue took {count} of {limit}"
                    raise RuntimeError(message)
                table.requeued = _updated(table)
    return Result(
        number="9",
        what=f"requeue of {limit:,} changed at {large:,} ÷ at {small:,}",
        value=median(seen[large]) / median(seen[small]),
        floor=2.0,
        goal=1.3,
        more_is_better=False,
        detail={f"at {size:,}, ms": median(times) * 1000 for size, times in seen.items()},
    )


def _updated(table: Table) -> list[int]:
    """The targets that the last requeue admitted: found in the ready index, put back before the next turn."""
    rows = table.conn.execute(
        """
        SELECT id FROM target_hot
        WHERE source_id = %s AND rank = 4 AND state IN ('pending', 'deferred') AND reserved_by IS NULL
            AND not_before > now() - interval '5 minutes' AND admission = 'updated'
        """,
        (table.source,),
    )
    return [row[0] for row in rows]


def _table(run: Run, stack: ExitStack, kind: str, size: int) -> Table:
    name = f"{kind}_{size}"
    conninfo = stack.enter_context(run.server.database(name, keep=run.keep))
    conn = stack.enter_context(psycopg.connect(conninfo, autocommit=True))
    row = conn.execute("SELECT max(id) FROM target_hot").fetchone()
    if row is None or row[0] is None:
        source = add_source(conn)
        fill(conn, source_id=source, first=1, count=size, state=kind, changed_every=_CHANGED_EVERY)
        tidy(conn)
        return Table(conn=conn, source=source, next_id=size + 1)
    return Table(conn=conn, source=1, next_id=row[0] + 1)

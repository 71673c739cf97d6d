"""Figures 4 to 7 and 10: claiming and completing no-op scans against plain pgbench, and against the peers."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from . import peer
from .measure import Cost, Result, counted, interleave, median, ratio, settle
from .run import Run
from .table import add_source, fill, tidy

FIGURES = frozenset({"4", "5", "6", "7", "10"})
_RAW = Path(__file__).with_name("raw.sql")
_BATCH = 100
_PEER_BATCHES = (100, 500, 1_000)
Session = psycopg.Connection[Any]


@dataclass(slots=True, kw_only=True)
class Drained:
    """One drain of ours: its cost, and how many targets were handed out twice."""

    cost: Cost
    twice: int


def measure(run: Run) -> Iterator[Result]:
    """Figures 4 to 7 and 10."""
    jobs = run.size // 10
    for number, processes in (("4", 1), ("5", 2)):
        if run.only & ({number} | ({"6", "7"} if processes == 1 else {"10"})):
            yield from _against_raw(run, number, processes, jobs)
    if "6" in run.only and run.peers:
        yield _against_peers(run, jobs)


def _against_raw(run: Run, number: str, processes: int, jobs: int) -> Iterator[Result]:
    seen = interleave(
        {"ours": lambda _: _ours(run, processes, jobs), "raw": lambda _: _raw(run, processes, jobs)}, run.repetitions
    )
    ours = [side.cost for side in seen["ours"] if isinstance(side, Drained)]
    raw = [side for side in seen["raw"] if isinstance(side, Cost)]
    twice = sum(side.twice for side in seen["ours"] if isinstance(side, Drained))
    if number in run.only:
        yield Result(
            number=number,
            what=f"claim + complete, {processes} process{'es' * (processes > 1)} ÷ raw batch 100",
            value=ratio([cost.rate for cost in ours], [cost.rate for cost in raw]),
            floor=0.7,
            goal=0.95,
            more_is_better=True,
            detail={
                "ours, targets/s": median([cost.rate for cost in ours]),
                "raw, targets/s": median([cost.rate for cost in raw]),
                "raw, WAL B per target": median([cost.wal_bytes / cost.items for cost in raw]),
            },
        )
    if "7" in run.only and processes == 1:
        yield from _per_target(ours)
    if "10" in run.only and processes > 1:
        yield Result(
            number="10", what="handed to two workers", value=float(twice), floor=0, goal=0, more_is_better=False
        )


def _per_target(costs: Sequence[Cost]) -> Iterator[Result]:
    for what, unit, values, floor, goal in (
        ("statements", "", [cost.statements / cost.items for cost in costs], 0.05, 0.02),
        ("dead versions", "", [cost.dead_rows / cost.items for cost in costs], 2.0, 2.0),
        ("WAL", "B", [cost.wal_bytes / cost.items for cost in costs], 1300.0, 900.0),
    ):
        yield Result(
            number="7",
            what=f"per claimed and completed target: {what}",
            value=median(values),
            floor=floor,
            goal=goal,
            more_is_better=False,
            unit=unit,
        )


def _ours(run: Run, processes: int, jobs: int) -> Drained:
    with run.server.database("drain") as conninfo, psycopg.connect(conninfo, autocommit=True) as watch:
        _prepare(watch, jobs)
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.drainer", conninfo, str(_BATCH)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(processes)
        ]
        for worker in workers:
            _line(worker, "ready")
        settle(watch)
        with counted(watch, jobs) as cost:
            for worker in workers:
                if worker.stdin is not None:
                    worker.stdin.write("go\n")
                    worker.stdin.flush()
            told = [json.loads(worker.communicate()[0]) for worker in workers]
            settle(watch)
        cost.seconds = max(part["seconds"] for part in told)
        handed = Counter(target for part in told for target in part["handed"])
        if len(handed) != jobs:
            message = f"{len(handed)} of {jobs} targets were completed"
            raise RuntimeError(message)
        return Drained(cost=cost, twice=sum(count - 1 for count in handed.values()))


def _raw(run: Run, processes: int, jobs: int) -> Cost:
    with run.server.database("drain") as conninfo, psycopg.connect(conninfo, autocommit=True) as watch:
        _prepare(watch, jobs)
        turns = jobs // _BATCH // processes
        command = [run.server.pgbench, "-n", "-M", "prepared", "-f", str(_RAW), "-t", str(turns)]
        command += ["-c", str(processes), "-j", str(processes), conninfo]
        settle(watch)
        with counted(watch, turns * processes * _BATCH) as cost:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            settle(watch)
        rate = next(line for line in done.stdout.splitlines() if line.startswith("tps"))
        cost.seconds = cost.items / (float(rate.split()[2]) * _BATCH)
        row = watch.execute("SELECT count(*) FROM target_history").fetchone()
        if row is None or row[0] != cost.items:
            message = f"raw.sql completed {row} of {cost.items}"
            raise RuntimeError(message)
        return cost


def _prepare(watch: Session, jobs: int) -> None:
    """A tenth waiting, the rest finished: the queue of a service that has run for a while."""
    source = add_source(watch)
    fill(watch, source_id=source, first=1, count=jobs, state="waiting")
    fill(watch, source_id=source, first=jobs + 1, count=jobs, state="done")
    tidy(watch)


def _against_peers(run: Run, jobs: int) -> Result:
    """Figure 6: ours against pgqueuer at its best batch size, and procrastinate for the record."""
    jobs = min(jobs, 20_000)
    pgqueuer = peer.install("pgqueuer", run.work)

    def pgqueuer_rate(batch: int) -> float:
        with run.server.database("peer") as conninfo:
            url = run.server.url(conninfo)
            peer.fill(pgqueuer, "pgqueuer", url, jobs)
            return jobs / peer.drain(pgqueuer, "pgqueuer", url, batch)

    best = max(_PEER_BATCHES, key=pgqueuer_rate)
    seen = interleave(
        {"ours": lambda _: _ours(run, 1, jobs).cost.rate, "pgqueuer": lambda _: pgqueuer_rate(best)}, run.repetitions
    )
    return Result(
        number="6",
        what=f"claim + complete, 1 process ÷ pgqueuer 1.6 at batch {best}",
        value=ratio(seen["ours"], seen["pgqueuer"]),
        floor=2.0,
        goal=3.0,
        more_is_better=True,
        detail={
            "ours, targets/s": median(seen["ours"]),
            "pgqueuer, jobs/s": median(seen["pgqueuer"]),
            "procrastinate, jobs/s": _procrastinate_rate(run, jobs // 10),
        },
    )


def _procrastinate_rate(run: Run, jobs: int) -> float:
    python = peer.install("procrastinate", run.work)
    with run.server.database("peer") as conninfo:
        url = run.server.url(conninfo)
        peer.fill(python, "procrastinate", url, jobs)
        return jobs / peer.drain(python, "procrastinate", url, 10)


def _line(worker: subprocess.Popen[str], wanted: str) -> None:
    until = time.monotonic() + 60
    while worker.stdout is not None and time.monotonic() < until:
        if worker.stdout.readline().strip() == wanted:
            return
        if worker.poll() is not None:
            break
    message = f"a drainer did not say {wanted!r}"
    raise RuntimeError(message)

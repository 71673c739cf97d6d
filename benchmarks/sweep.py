"""Figures 11 and 12: real repositories through the running product against the bare scanner over all of them.

The repositories are made from source distributions (``tests/support/corpus.py``). The product runs as a person starts
it, ``resweep up git:FOLDER``; times are the database's: start of the cycle to the last completion.
"""

import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from resweep.runner.scanners.kingfisher import EXIT_CODES, SETTINGS
from tests.support import corpus

from .measure import Result, median
from .run import Run

FIGURES = frozenset({"11", "12"})
_WORKERS = 2  # as many as the machine has cores: both sides
_PATIENCE = 1_800
Session = psycopg.Connection[Any]


def measure(run: Run) -> Iterator[Result]:
    """Figures 11 and 12."""
    count = min(run.repositories, 30) if run.quick else run.repositories
    if not run.corpus.is_dir() or not any(run.corpus.iterdir()):
        corpus.download(run.corpus)
    root = run.work / "repositories"
    repositories = corpus.make_corpus(root, run.corpus, count)
    _warm(run.work)
    bare: list[float] = []
    whole: list[float] = []
    second: list[float] = []
    scanner: list[float] = []
    for turn in range(run.repetitions):
        bare.append(_bare(run.work, repositories, clone=True))
        scanner.append(_bare(run.work, repositories, clone=False))
        first, again = _through(run, root, repositories, turn)
        whole.append(first)
        second.append(again)
    changed = _changed(count)
    if "11" in run.only:
        yield Result(
            number="11",
            what=f"second sweep of {count} repositories, {changed} changed ÷ the scanner over all",
            value=median([one / other for one, other in zip(second, scanner, strict=True)]),
            floor=0.05,
            goal=0.02,
            more_is_better=False,
            detail={"second sweep, s": median(second), "scanner over all, s": median(scanner)},
        )
    if "12" in run.only:
        yield Result(
            number="12",
            what=f"scanning {count} repositories ÷ hardened clone and bare scanner, {_WORKERS} at a time",
            value=median([one / other for one, other in zip(whole, bare, strict=True)]),
            floor=1.15,
            goal=1.05,
            more_is_better=False,
            detail={"through resweep, s": median(whole), "clone and scanner, s": median(bare)},
        )


def _changed(count: int) -> int:
    """One in a hundred, at least one."""
    return max(1, count // 100)


def _through(run: Run, root: Path, repositories: Sequence[Path], turn: int) -> tuple[float, float]:
    """Seconds of the first sweep, and of the one after a push to one repository in a hundred."""
    with run.server.database("sweep") as conninfo, psycopg.connect(conninfo, autocommit=True) as watch:
        data = run.work / "sweep-data"
        shutil.rmtree(data, ignore_errors=True)
        with _runtime(run.server.url(conninfo), data, root):
            first = _drained(watch, len(repositories), after=0)
            cycles = watch.execute("SELECT max(id) FROM source_cycles").fetchone()
            changed = repositories[: _changed(len(repositories))]
            for path in changed:
                corpus.push(path, {f"pushed/{turn}.txt": b"nothing secret\n"}, message=f"Push {turn}")
            again = _drained(watch, len(changed), after=cycles[0] if cycles else 0)
        shutil.rmtree(data, ignore_errors=True)
    return first, again


def _drained(watch: Session, targets: int, *, after: int) -> float:
    """Wait until ``targets`` completions followed a cycle later than ``after``; seconds from its start to the last."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        row = watch.execute(
            """
            WITH mine AS (
                SELECT id, started_at FROM source_cycles
                WHERE id > %(after)s AND (queued_new_count > 0 OR queued_updated_count > 0)
                ORDER BY id LIMIT 1
            )
            SELECT (SELECT started_at FROM mine), max(finished_at), count(*) FILTER (WHERE outcome = 'done')
            FROM target_history WHERE finished_at >= (SELECT started_at FROM mine)
            """,
            {"after": after},
        ).fetchone()
        if row is not None and row[2] >= targets:
            started, ended = row[0], row[1]
            if isinstance(started, datetime) and isinstance(ended, datetime):
                return (ended - started).total_seconds()
        time.sleep(0.2)
    message = f"{targets} targets were not drained within {_PATIENCE} s"
    raise TimeoutError(message)


@contextmanager
def _runtime(url: str, data: Path, root: Path) -> Generator[None, None, None]:
    """The product in the foreground of another process, ended by SIGTERM."""
    data.mkdir(parents=True)
    environment = os.environ | {
        "BENCH_DATABASE_URL": url,
        "RESWEEP_DATABASE__URL_ENV": "BENCH_DATABASE_URL",
        "RESWEEP_DATA_DIR": str(data),
        "RESWEEP_WORKERS__CONCURRENCY": str(_WORKERS),
    }
    log = data.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "resweep.runner", "up", f"git:{root}", "--no-web"],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield
        except TimeoutError as error:
            error.add_note(log.read_text("utf-8", errors="replace")[-2_000:])
            raise
        finally:
            process.terminate()
            process.wait(60)


def _bare(work: Path, repositories: Sequence[Path], *, clone: bool) -> float:
    """Seconds of clone (when asked) and scanner over all repositories, as many at a time as there are workers."""
    folder = work / "bare"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()

    def one(path: Path) -> None:
        target = path
        if clone:
            target = folder / path.name
            command = ["git", "clone", "--quiet", "--bare", "--no-local", str(path), str(target)]
            subprocess.run(command, check=True, capture_output=True)
        _scan(work, target, folder / f"{path.name}.json")

    started = time.perf_counter()
    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(one, repositories))
    return time.perf_counter() - started


def _warm(work: Path) -> None:
    """Compile the scanner's rules before anything is timed."""
    (work / "empty").mkdir(exist_ok=True)
    _scan(work, work / "empty", work / "empty.json")


def _scan(work: Path, target: Path, report: Path) -> None:
    """Run kingfisher with the product's own settings."""
    wheel: Any = importlib.import_module("kingfisher")

    command = [str(wheel.get_binary_path()), "scan", str(target), "-v", "--format", "json", *SETTINGS]
    command += ["-o", str(report), "--rule-cache-dir", str(work / "rule-cache"), "-j", "1"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode not in EXIT_CODES:
        message = f"kingfisher on {target} ended with {done.returncode}: {done.stderr[-500:]!r}"
        raise RuntimeError(message)

"""Real workers that are killed, stopped and started again, and what must be true of their database afterwards."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from psycopg.rows import tuple_row

from tests.support.queue import Conn
from tests.support.runtime import Deployment, Running

# A scanner that finds made-up tokens, and does what the repository says: `poison` kills the worker that runs it, past
# keeper and guardian; `gate` names a file that it waits for.
_SCANNER = r"""
import json, os, re, signal, subprocess, sys, time
def git(*words):
    return subprocess.run(["git", "--git-dir", sys.argv[1], *words], capture_output=True, check=True).stdout
def kill_worker():
    pid = os.getppid()
    while pid > 1:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        if b"resweep.runner" in words and b"work" in words:
            os.kill(pid, signal.SIGKILL)
            time.sleep(60)
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
    raise SystemExit("there is no worker above this")
for line in git("ls-tree", "-r", "-z", "HEAD").decode().split("\0"):
    if not line:
        continue
    about, path = line.split("\t", 1)
    content = git("cat-file", "blob", about.split()[2]).decode()
    if path == "poison":
        kill_worker()
    if path == "gate":
        ends = time.monotonic() + 120
        while not os.path.exists(content.strip()) and time.monotonic() < ends:
            time.sleep(0.05)
    for found in re.finditer(r"ghp_[A-Za-z0-9]{36}", content):
        print(json.dumps({"rule": "token", "path": path, "secret": found[0]}))
"""


def use_scripted_scanner(here: Deployment) -> Path:
    """Configure the scanner above as the only one of a deployment; gives the script, which its processes name."""
    script = here.folder / "scripted_scanner.py"
    script.write_text(_SCANNER)
    file = here.folder / "scripted.toml"
    file.write_text(
        f"[scanners.scripted]\ncommand = ['{sys.executable}', '-I', '-S', '{script}', '{{repository}}']\n"
        "format = 'jsonl'\nneeds = 'repository'\n[defaults]\nscanners = ['scripted']\n"
    )
    here.extra["RESWEEP_CONFIG"] = str(file)
    return script


@dataclass(slots=True)
class Crew:
    """Several ``resweep work`` processes of one deployment; whoever is killed is replaced by the test."""

    here: Deployment
    _stack: contextlib.ExitStack
    living: list[Running] = field(default_factory=list[Running])
    past: list[Running] = field(default_factory=list[Running])

    def start(self, **extra: str) -> Running:
        """One more worker; it is not ready yet."""
        running = self._stack.enter_context(self.here.started("work", **extra))
        self.living.append(running)
        return running

    def ready(self) -> list[Running]:
        """Those that live and claim."""
        return [each for each in self.living if each.process.poll() is None and _said_ready(each)]

    def wait_ready(self, count: int, seconds: float = 180.0) -> None:
        """Until so many claim."""
        wait_for(lambda: len(self.ready()) >= count, seconds, f"{count} workers that are ready")

    def kill(self, running: Running) -> None:
        """End one with -9, and see it gone."""
        running.process.kill()
        self.bury(running)

    def bury(self, running: Running) -> None:
        """Take one that died from the living."""
        running.process.communicate(timeout=60)
        self.living.remove(running)
        self.past.append(running)

    def dead(self) -> list[Running]:
        """Those that died and were not buried."""
        return [each for each in self.living if each.process.poll() is not None]

    def stop(self) -> None:
        """End all in order; each must end well."""
        for running in self.living:
            running.process.terminate()
        for running in list(self.living):
            self.bury(running)
            assert running.process.returncode == 0, running.lines[-20:]

    def accepted(self) -> list[tuple[int, int]]:
        """Every completion that a worker was told was taken, as (target, lease token)."""
        return [
            (int(line["target_id"]), int(line["claim"]))
            for running in (*self.past, *self.living)
            for line in running.lines
            if line.get("event") in {"scanned", "unchanged", "scanned in part"}
        ]


@contextlib.contextmanager
def crew(here: Deployment, size: int, *, apart: bool = False) -> Generator[Crew]:
    """So many workers, ready; all are gone at the end of the block. ``apart``: as on machines of their own."""
    with contextlib.ExitStack() as stack:
        made = Crew(here, stack)
        for number in range(size):
            made.start(**({"RESWEEP_DATA_DIR": str(here.folder / f"machine{number}")} if apart else {}))
        try:
            made.wait_ready(size)
            yield made
        finally:
            for running in list(made.living):
                made.kill(running)


def _said_ready(running: Running) -> bool:
    return any(line.get("code") == "ready" for line in running.lines)


def wait_for(met: Callable[[], bool], seconds: float, what: str, told: Callable[[], Any] = str) -> None:
    """Poll until it holds; fails with ``what`` and what ``told`` gives."""
    ends = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < ends, f"not within {seconds} s: {what} {told()}"
        time.sleep(0.02)


def processes_of(folder: Path) -> dict[int, str]:
    """Living processes that name ``folder`` in their command line, environment or working folder."""
    wanted, found = os.fsencode(folder), dict[int, str]()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                here = Path("/proc", name)
                command = (here / "cmdline").read_bytes()
                if not command:
                    continue  # a zombie, or the kernel's own
                if wanted in command + (here / "environ").read_bytes() + os.fsencode((here / "cwd").readlink()):
                    found[int(name)] = command.replace(b"\0", b" ").decode("utf-8", "replace")
    return found


def tree_of(running: Running) -> list[psutil.Process]:
    """What a worker started, down to the last grandchild."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(running.process.pid).children(recursive=True)
    return []


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that are not over."""
    found: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def leftovers(here: Deployment, *others: Path) -> list[str]:
    """Files and folders of runs and of half-done transfers below a deployment, and everything below ``others``."""
    runs = [path for path in (here.data_dir / "work").rglob("*") if path.name != "sweep.lock"]
    copies = [
        path
        for path in (here.data_dir / "checkouts").rglob("*")
        if path.name.startswith(("new-", "tmp_", ".tmp-")) or (path.suffix == ".lock" and "refs" in path.parts)
    ]
    return sorted(str(path) for path in [*runs, *copies, *(path for other in others for path in other.rglob("*"))])


# --- what the database says ---


def ask(conn: Conn, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows as tuples, of a transaction of their own."""
    conn.rollback()
    with conn.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute(query.encode(), values).fetchall()
    conn.rollback()
    return rows


def clock(conn: Conn) -> datetime:
    """The database's clock, the only one that counts."""
    found: datetime = ask(conn, "SELECT clock_timestamp()")[0][0]
    return found


def uuid_of(conn: Conn, running: Running) -> UUID:
    """Which worker a process is."""
    query = "SELECT uuid FROM worker WHERE pid = %s ORDER BY started_at DESC LIMIT 1"
    found: UUID = ask(conn, query, running.process.pid)[0][0]
    return found


def held_by(conn: Conn, worker: UUID) -> list[tuple[int, int]]:
    """Leases of a worker, as (target, lease token)."""
    return [
        (row[0], row[1]) for row in ask(conn, "SELECT id, lease_token FROM target_hot WHERE lease_owner = %s", worker)
    ]


def states(conn: Conn) -> dict[str, int]:
    """How many targets there are in each state."""
    return {row[0]: row[1] for row in ask(conn, "SELECT state::text, count(*) FROM target_hot GROUP BY 1")}


def claims_without_one_end(conn: Conn) -> list[tuple[Any, ...]]:
    """Targets whose claims did not each end once: with nothing in progress, tokens 1 to n stand in the history."""
    return ask(
        conn,
        "SELECT h.id, h.lease_token, array_agg(y.lease_token ORDER BY y.lease_token) FROM target_hot h"
        " LEFT JOIN target_history y ON y.target_id = h.id GROUP BY 1, 2"
        " HAVING coalesce(array_agg(y.lease_token ORDER BY y.lease_token)"
        " FILTER (WHERE y.lease_token IS NOT NULL), '{}')"
        " <> ARRAY (SELECT generate_series(1, h.lease_token))",
    )


def share(values: list[float], part: float) -> float:
    """A quantile, the value itself, no mean of two."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

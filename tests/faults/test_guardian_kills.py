"""Worker, guardian and keeper killed with -9 at any moment: no process and no file is left (reliability.md F1, 7.7)."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from resweep.runner.scanners.limits import Ended, Limits
from resweep.runner.scanners.process import Guard
from tests.support.processes import processes_with, wait_until

ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath)}
# A worker of its own process with two running "scanners", each with a child in its session and one that left it.
WORKER = """
import os, sys, threading
from pathlib import Path
from resweep.runner.scanners.limits import Limits
from resweep.runner.scanners.process import Guard
guard = Guard(Path(sys.argv[1]))
mark = sys.argv[2]
script = (f"echo started >&2; sleep 300.{mark} & setsid sh -c 'sleep 301.{mark} & sleep 302.{mark}' & "
          f"mkdir d; head -c 100000 /dev/zero > d/f; sleep 303.{mark}")
def scan():
    with guard.work_folder() as work:
        guard.run(["sh", "-c", script], cwd=work, env={"PATH": os.environ["PATH"]}, limits=Limits(seconds=120),
                  stdout=work / "o", stderr=work / "e", scratch=work)
threads = [threading.Thread(target=scan) for _ in range(2)]
for thread in threads: thread.start()
print("ready", flush=True)
for thread in threads: thread.join()
"""


def no_sleeper(worker: "Worker") -> bool:
    """Whether everything that the worker started is gone."""
    return not worker.sleepers()


class Worker:
    """A real worker process whose sleeping grandchildren carry a number of their own on their command lines."""

    def __init__(self, root: Path) -> None:
        self.mark = f"{random.randrange(10**8):08d}"
        paths = [*sys.path]
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(root), self.mark],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def sleepers(self) -> list[int]:
        return [pid for pid in processes_with(f".{self.mark}") if pid != self.process.pid]

    def settle(self) -> None:
        # two shells, two inner shells, eight sleepers
        assert wait_until(lambda: len(self.sleepers()) >= 12), self.sleepers()

    def guardian(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        tasks = [
            Path(f"/proc/{self.process.pid}/task/{task}/children").read_text().split()
            for task in os.listdir(f"/proc/{self.process.pid}/task")
        ]
        pids = {int(pid) for found in [children, *tasks] for pid in found}
        (guardian,) = [pid for pid in pids if b"resweep_guardian" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return guardian

    def keepers(self) -> list[int]:
        guardian = self.guardian()
        return [int(pid) for pid in Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()]

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        for pid in self.sleepers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def worker(root: Path) -> Iterator[Worker]:
    made = Worker(root)
    yield made
    made.end()


def left(root: Path) -> list[str]:
    """Files and folders below the root, but for the lock of the root itself."""
    found = [
        Path(folder) / name for folder, folders, files in os.walk(root) for name in (*folders, *files)
    ]  # may vanish
    return sorted(str(path.relative_to(root)) for path in found if path.name != "sweep.lock")


def test_f1_a_killed_worker_leaves_no_process_and_no_file(worker: Worker, root: Path) -> None:
    worker.settle()
    started = time.monotonic()
    worker.process.kill()
    assert wait_until(lambda: not worker.sleepers(), 5), worker.sleepers()
    gone = time.monotonic() - started
    assert wait_until(lambda: all(path.endswith(".lock") for path in left(root)), 5), left(root)
    print(f"tree gone {gone * 1000:.0f} ms after kill -9 of the worker")
    assert gone < 2


def test_f1_twenty_workers_killed_at_random_moments_leave_nothing(root: Path) -> None:
    """Sixty kills of a whole runtime stand in its own fault test; these hit starting and ending runs."""
    times: list[float] = []
    chooser = random.Random(20261201)
    for _ in range(20):
        worker = Worker(root)
        try:
            time.sleep(chooser.choice([0.0, 0.005, 0.02, 0.05, 0.2]))
            started = time.monotonic()
            worker.process.kill()
            worker.process.wait()
            assert wait_until(partial(no_sleeper, worker), 5), worker.sleepers()
            times.append(time.monotonic() - started)
        finally:
            worker.end()
    time.sleep(0.2)  # guardians that are still leaving hold their locks
    with Guard(root) as guard:  # a worker killed before it had a guardian leaves its empty folder to the next start
        assert all(path.startswith(guard.folder.name) for path in left(root)), left(root)
    assert left(root) == []
    print(f"20 kills: processes left 0, bytes left 0, slowest end {max(times) * 1000:.0f} ms")


def test_a_killed_keeper_takes_its_scanner_along_and_the_worker_learns(worker: Worker, root: Path) -> None:
    worker.settle()
    for pid in worker.keepers():
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not worker.sleepers(), 5), worker.sleepers()
    assert worker.process.wait(10) == 0


def test_scans_outlive_a_killed_guardian_and_end_with_their_worker(worker: Worker, root: Path) -> None:
    worker.settle()
    keepers = worker.keepers()
    os.kill(worker.guardian(), signal.SIGKILL)
    time.sleep(0.3)
    assert len(worker.sleepers()) >= 12
    worker.process.kill()
    assert wait_until(lambda: not worker.sleepers(), 5), worker.sleepers()
    # A keeper that is still leaving holds the owner's lock, and whoever holds it is not swept.
    assert wait_until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in keepers), 5)
    with Guard(root) as guard:  # nobody was left to remove the folder: the next one on this root does
        assert guard.swept == 1
        assert [path for path in left(root) if "/" in path] == []


def test_worker_guardian_and_keepers_killed_at_once_leave_no_scanner_and_the_next_start_sweeps(
    worker: Worker, root: Path
) -> None:
    worker.settle()
    guardian, keepers = worker.guardian(), worker.keepers()
    for pid in (guardian, *keepers, worker.process.pid):
        os.kill(pid, signal.SIGKILL)
    worker.process.wait()
    # The scanners die with their keepers; what they started has no parent of ours left, but carries our mark.
    assert wait_until(
        lambda: (
            not any(
                b"303." in Path(f"/proc/{p}/cmdline").read_bytes()
                and b"sh" in Path(f"/proc/{p}/cmdline").read_bytes()[:3]
                for p in worker.sleepers()
            )
        ),
        5,
    )
    with Guard(root) as guard:
        assert guard.swept == 1
        assert worker.sleepers() == []
        assert [path for path in left(root) if "/" in path] == []


def test_a_stopped_worker_that_dies_is_noticed_all_the_same(worker: Worker) -> None:
    """F3: the zombie case at this floor: SIGSTOP, then the operator's kill -9."""
    worker.settle()
    worker.process.send_signal(signal.SIGSTOP)
    worker.process.kill()
    assert wait_until(lambda: not worker.sleepers(), 5)


def test_a_guard_whose_guardian_was_killed_starts_another(tmp_path: Path) -> None:
    with Guard(tmp_path / "runs") as guard:
        folder = guard.folder

        def run(*argv: str) -> Ended:
            return guard.run(
                argv, cwd=folder, env=ENVIRONMENT, limits=Limits(seconds=20), stdout=folder / "o", stderr=folder / "e"
            ).ended

        assert run("true") is Ended.EXIT
        first = guard.guardian_pid
        assert first is not None
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for pid in (first, *map(int, children)):
            os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: run("true") is Ended.EXIT, 5)
        assert guard.guardian_pid != first


def test_signals_that_end_the_worker_do_not_end_its_guardian(tmp_path: Path) -> None:
    with Guard(tmp_path / "runs") as guard:
        folder = guard.folder
        guard.run(["true"], cwd=folder, env=ENVIRONMENT, limits=Limits(), stdout=folder / "o", stderr=folder / "e")
        pid = guard.guardian_pid
        assert pid is not None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, number)
        time.sleep(0.1)
        assert (
            guard.run(
                ["true"], cwd=folder, env=ENVIRONMENT, limits=Limits(), stdout=folder / "o", stderr=folder / "e"
            ).ended
            is Ended.EXIT
        )
        assert guard.guardian_pid == pid


def test_a_scanner_that_kills_its_parent_hurts_only_its_own_run(tmp_path: Path) -> None:
    """reliability.md 2 A 16: ``kill -9 $PPID`` reaches the keeper, not the worker."""
    with Guard(tmp_path / "runs") as guard:
        folder = guard.folder
        result = guard.run(
            ["sh", "-c", "setsid sleep 304.77 & kill -9 $PPID; sleep 304.77"],
            cwd=folder, env=ENVIRONMENT, limits=Limits(seconds=20), stdout=folder / "o", stderr=folder / "e",
        )  # fmt: skip
        assert result.ended is Ended.LOST
        assert wait_until(lambda: not processes_with("304.77"), 5)
        assert (
            guard.run(
                ["true"], cwd=folder, env=ENVIRONMENT, limits=Limits(), stdout=folder / "o", stderr=folder / "e"
            ).ended
            is Ended.EXIT
        )


def test_starting_a_run_costs_little(tmp_path: Path) -> None:
    """performance.md 12: the guardian's share of a scan; a scan of the smallest repository takes about 700 ms."""
    with Guard(tmp_path / "runs") as guard:
        runner = guard.command_runner()
        costs: list[float] = []
        for _ in range(30):
            started = time.perf_counter()
            runner(["true"], cwd=tmp_path, env=ENVIRONMENT, seconds=10.0, output_limit_bytes=100)
            costs.append(time.perf_counter() - started)
        middle = sorted(costs)[len(costs) // 2]
        print(json.dumps({"median_ms": round(middle * 1000, 2), "first_ms": round(costs[0] * 1000, 1)}))
        assert middle < 0.035

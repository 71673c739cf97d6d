"""What one run may do and how it ends (product.md "Scanning"; reliability.md 2 C 74-80)."""

import ast
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from resweep.runner.scanners.foldertree import remove_tree
from resweep.runner.scanners.limits import Ended, Limits, ProcessResult
from resweep.runner.scanners.process import Guard
from tests.support.processes import processes_with

ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath)}


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    with Guard(tmp_path / "runs") as made:
        yield made


def run(guard: Guard, *argv: str, cancel: threading.Event | None = None, **limits: float) -> ProcessResult:
    with guard.work_folder() as work:
        return guard.run(
            argv,
            cwd=work,
            env=ENVIRONMENT,
            limits=Limits(**{"seconds": 20.0, **limits}),  # type: ignore[arg-type]
            stdout=guard.folder / "stdout",
            stderr=guard.folder / "stderr",
            cancel=cancel,
            scratch=work,
        )


def python(guard: Guard, script: str, **limits: float) -> ProcessResult:
    return run(guard, sys.executable, "-I", "-S", "-c", script, cancel=None, **limits)


def test_an_ordinary_run_gives_its_exit_code_and_output(guard: Guard) -> None:
    result = run(guard, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (result.ended, result.exit_code, result.limit) == (Ended.EXIT, 7, None)
    assert (guard.folder / "stdout").read_text() == "out\n"
    assert (guard.folder / "stderr").read_text() == "err\n"
    assert (guard.folder / "stdout").stat().st_mode & 0o777 == 0o600


def test_a_program_that_is_not_there_is_said(guard: Guard) -> None:
    result = run(guard, "no-such-program")
    assert result.ended is Ended.NOT_STARTED
    assert "no-such-program" in (result.error or "")


def test_only_the_given_environment_and_three_files_reach_it(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESWEEP_DATABASE__URL", "postgresql://not-for-you")
    script = "import os; print(sorted(os.environ)); print(sorted(os.listdir('/proc/self/fd')))"
    assert python(guard, script).exit_code == 0
    names, files = (guard.folder / "stdout").read_text().splitlines()
    assert ast.literal_eval(names) == ["LC_CTYPE", "PATH", "RESWEEP_RUN"] or ast.literal_eval(names) == [
        "PATH",
        "RESWEEP_RUN",
    ]
    assert len(ast.literal_eval(files)) == 4  # the fourth is the listing itself


def test_it_leads_its_own_session_and_cannot_gain_rights(guard: Guard) -> None:
    script = "import os; print(os.getsid(0) == os.getpid()); print(open('/proc/self/status').read())"
    python(guard, script)
    text = (guard.folder / "stdout").read_text()
    assert text.startswith("True")
    assert "NoNewPrivs:\t1" in text


def test_time_ends_it(guard: Guard) -> None:
    started = time.monotonic()
    assert run(guard, "sleep", "30", seconds=0.3).limit == "time"
    assert time.monotonic() - started < 5


def test_a_run_that_ignores_sigterm_is_killed(guard: Guard) -> None:
    result = run(guard, "sh", "-c", "trap '' TERM; while :; do sleep 1; done", seconds=0.3)
    assert (result.limit, result.exit_code) == ("time", -9)


def test_memory_of_all_its_processes_together_ends_it(guard: Guard) -> None:
    script = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = bytearray(os.urandom(1)) * (60 << 20)
        time.sleep(20)
time.sleep(20)
"""
    result = python(guard, script, memory_bytes=160 << 20)
    assert result.limit == "memory"
    assert result.peak_memory_bytes > 160 << 20
    assert result.seconds < 10


def test_memory_that_processes_share_is_counted_once(guard: Guard) -> None:
    script = """
import os, time
held = bytearray(b'x') * (60 << 20)
children = []
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        time.sleep(0.5)
        os._exit(0)
    children.append(pid)
for pid in children: os.waitpid(pid, 0)
"""
    result = python(guard, script, memory_bytes=160 << 20)
    assert (result.ended, result.exit_code) == (Ended.EXIT, 0)


def test_a_fork_bomb_is_ended_whole(guard: Guard) -> None:
    script = """
import os, time
made = 0
while made < 2000:
    made += 1
    if os.fork() == 0:
        if made % 3 == 0: os.setsid()
        time.sleep(60); os._exit(0)
time.sleep(60)
"""
    result = python(guard, script, processes=40)
    assert result.limit == "processes"
    assert result.left_behind == 0
    assert processes_with("time.sleep(60); os._exit(0)") == []


@pytest.mark.parametrize("stream", ["1", "2"])
def test_output_ends_it(guard: Guard, stream: str) -> None:
    result = run(guard, "sh", "-c", f"yes >&{stream}", output_bytes=10_000)
    assert result.limit == "output"
    assert result.seconds < 5


def test_a_burst_of_output_before_its_end_is_noticed(guard: Guard) -> None:
    assert run(guard, "sh", "-c", "head -c 50000 /dev/zero", output_bytes=10_000).limit == "output"


@pytest.mark.parametrize(
    "how", ["head -c 3000000 /dev/zero > big", f"{sys.executable} -c \"open('big','wb').write(b'x'*3000000)\""]
)
def test_a_file_over_its_size_ends_it(guard: Guard, how: str) -> None:
    assert run(guard, "sh", "-c", how, file_bytes=1_000_000).limit == "file_size"


def test_many_files_over_the_folders_size_end_it(guard: Guard) -> None:
    script = "i=0; while :; do i=$((i+1)); head -c 100000 /dev/zero > f$i; done"
    result = run(guard, "sh", "-c", script, work_bytes=5_000_000)
    assert result.limit == "disk"
    assert result.seconds < 10


def test_what_it_leaves_running_is_ended_though_it_left_its_session(guard: Guard) -> None:
    escape = (
        "import os,time\np=os.fork()\nif p==0:\n os.setsid()\n if os.fork()==0:\n  time.sleep(61)\n os._exit(0)\n"
        "os.waitpid(p,0)"  # the one in between is gone for sure: two are left
    )
    result = run(guard, "sh", "-c", f"{sys.executable} -I -S -c '{escape}'; (sleep 62 &) ; exit 0")
    assert (result.ended, result.exit_code) == (Ended.EXIT, 0)
    assert result.stragglers == 2
    assert processes_with("time.sleep(61)") == []


def test_a_grandchild_that_holds_the_output_does_not_hold_us(guard: Guard) -> None:
    started = time.monotonic()
    run(guard, "sh", "-c", "sleep 63 & exit 0")
    assert time.monotonic() - started < 3


def test_the_callers_event_ends_it(guard: Guard) -> None:
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    started = time.monotonic()
    result = run(guard, "sh", "-c", "setsid sleep 64 & sleep 64", cancel=cancel)
    assert result.ended is Ended.CANCELLED
    assert result.left_behind == 0
    assert time.monotonic() - started < 3
    assert run(guard, "true").exit_code == 0  # the word that ended the one does not reach the next


def test_many_threads_share_one_guardian(guard: Guard) -> None:
    codes: list[int] = []

    def note(n: int) -> None:
        codes.append(run(guard, "sh", "-c", f"sleep 0.2; exit {n}").exit_code)

    threads = [threading.Thread(target=note, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == list(range(12))


def test_a_command_runner_gives_bytes_and_cuts_them(guard: Guard, tmp_path: Path) -> None:
    runner = guard.command_runner()

    def ask(*argv: str, stdin: bytes | None = None, seconds: float = 10.0) -> object:
        return runner(argv, cwd=tmp_path, env=ENVIRONMENT, seconds=seconds, output_limit_bytes=1000, stdin=stdin)

    done = ask("cat", stdin=b"\x00\xff")
    assert (done.exit_code, done.stdout, done.stderr) == (0, b"\x00\xff", b"")  # type: ignore[attr-defined]
    assert ask("cat").stdout == b""  # type: ignore[attr-defined]
    cut = ask("yes")
    assert (cut.truncated, len(cut.stdout)) == (True, 1000)  # type: ignore[attr-defined]
    assert ask("sleep", "9", seconds=0.2).timed_out  # type: ignore[attr-defined]


def test_the_private_folder_goes_whatever_was_put_into_it(guard: Guard, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("keep")
    with guard.work_folder() as work:
        (work / "link").symlink_to(outside)
        closed = work / "closed" / "inner"
        closed.mkdir(parents=True)
        (closed / "file").write_text("x")
        closed.chmod(0o000)
        closed.parent.chmod(0o000)
        (work / os.fsdecode(b"bad\xff\nname")).write_text("x")
        here = os.open(work, os.O_RDONLY)
        for _ in range(1500):  # deeper than a path may be long, and than Python may recurse
            os.mkdir("deep-folder", dir_fd=here)
            inner = os.open("deep-folder", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        os.close(here)
    assert not work.exists()
    assert (outside / "keep").read_text() == "keep"
    remove_tree(str(work))  # what is gone already is no error


def test_a_closed_guard_leaves_nothing_and_runs_nothing(tmp_path: Path) -> None:
    guard = Guard(tmp_path / "runs")
    run(guard, "true")
    pid = guard.guardian_pid
    guard.close()
    guard.close()
    assert not Path(f"/proc/{pid}").exists()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["sweep.lock"]
    with pytest.raises(RuntimeError, match="closed"):
        run(guard, "true")


def test_closing_ends_runs_that_go_on(tmp_path: Path) -> None:
    guard = Guard(tmp_path / "runs")
    (guard.folder / "work").mkdir()
    results: list[ProcessResult] = []

    def go_on() -> None:
        folder = guard.folder
        results.append(
            guard.run(
                ["sleep", "65"], cwd=folder, env=ENVIRONMENT, limits=Limits(), stdout=folder / "o", stderr=folder / "e"
            )
        )

    thread = threading.Thread(target=go_on)
    thread.start()
    time.sleep(0.3)
    started = time.monotonic()
    guard.close()
    thread.join(10)
    assert time.monotonic() - started < 5
    assert [result.ended for result in results] == [Ended.LOST]

"""Ends that must come soon, whatever is being waited for; and scans that were left to workers that are gone."""

import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kingfisher import get_binary_path  # pyright: ignore[reportMissingTypeStubs]

from resweep.runner.running import Stop
from resweep.runner.signals import Signals
from tests.support.processes import commit, new_repository, token_line
from tests.support.runtime import COMMAND, Deployment, Running, deployment

pytestmark = pytest.mark.timeout(300)

_SOON = 15.0  # seconds, on a busy machine; what must not be waited for takes longer than this


@pytest.fixture
def here(tmp_path: Path, database_url: str) -> Deployment:
    return deployment(tmp_path, database_url)


@pytest.fixture
def far(tmp_path: Path) -> Path:
    folder = tmp_path / "far"
    commit(new_repository(folder / "secret"), {"conf.py": token_line(1)})
    return folder


@contextmanager
def silent_server() -> Generator[str, None, None]:
    """An address where connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(listening.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/silent.git"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for each in taken:
                each.close()


def never_ready_kingfisher(folder: Path) -> None:
    """The real scanner behind a program that tells its version and then takes a minute for every scan."""
    wrapper = folder / "never-ready-kingfisher"
    wrapper.write_text(f'#!/bin/sh\n[ "$1" = scan ] && sleep 60\nexec "{get_binary_path()}" "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    (folder / "resweep.toml").write_text(f"[scanners.kingfisher]\ncommand = ['{wrapper}']\n")


def workers_ended(conn: Any) -> list[bool]:
    return [row[0] for row in conn.execute("SELECT stopped_at IS NOT NULL FROM worker").fetchall()]


def wait_scanned(running: Running) -> None:
    running.wait_ready()
    running.wait_for(lambda line: line.get("event") == "scanned")


@pytest.mark.skipif(sys.platform == "win32", reason="does not apply: there is no SIGHUP on Windows")
def test_a_terminal_that_goes_away_ends_the_runtime_in_order(here: Deployment, far: Path, conn: Any) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup, and children inherit that
    try:
        with here.started("up", f"git:{far}") as running:
            wait_scanned(running)
            running.signal(signal.SIGHUP)
            assert running.ended() == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert workers_ended(conn) == [True]


@pytest.mark.skipif(sys.platform == "win32", reason="does not apply: there is no SIGHUP on Windows")
def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    stop = Stop()
    try:
        with Signals(stop):
            signal.raise_signal(signal.SIGHUP)
            assert not stop.asked.is_set()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("once", [["--once"], []])
def test_an_end_during_the_scanners_test_waits_for_no_scanner(here: Deployment, far: Path, once: list[str]) -> None:
    never_ready_kingfisher(here.folder)
    with here.started("up", f"git:{far}", *once) as running:
        running.wait_for(lambda line: line.get("event") == "cycle ended")
        began = time.monotonic()
        running.signal(signal.SIGTERM)
        assert running.ended() == 0
        assert time.monotonic() - began < _SOON
        assert not [line for line in running.lines if line.get("level") == "error" or line.get("code") == "ready"]


@pytest.mark.parametrize("once", [["--once"], []])
def test_an_end_does_not_wait_for_a_remote_that_never_answers_and_blames_nobody(
    here: Deployment, conn: Any, once: list[str]
) -> None:
    with silent_server() as address:
        (here.folder / "resweep.toml").write_text(f"[sources.silent]\nkind = 'git'\nurls = ['{address}']\n")
        with here.started("up", "--no-workers", *once, RESWEEP_LOG__LEVEL="debug") as running:
            began = time.monotonic()
            while not conn.execute("SELECT FROM source_cycles WHERE status = 'running'").fetchall():
                assert time.monotonic() - began < 60, "no cycle began"
                time.sleep(0.1)
            time.sleep(0.5)
            began = time.monotonic()
            running.signal(signal.SIGTERM)
            assert running.ended() == 0
            assert time.monotonic() - began < _SOON
    cycle = conn.execute("SELECT status::text, error_code, fetched_count FROM source_cycles").fetchall()
    assert cycle == [("partial", "stopped", 0)]
    assert conn.execute("SELECT fault_streak, last_fault_code FROM source").fetchall() == [(0, None)]


def test_a_scan_is_ended_while_its_remote_never_answers(here: Deployment) -> None:
    with silent_server() as address, here.started("scan", f"git:{address}") as running:
        time.sleep(5)
        began = time.monotonic()
        running.signal(signal.SIGINT)
        assert running.ended() == 130
        assert time.monotonic() - began < _SOON


def test_a_scan_does_not_wait_for_a_runtime_that_was_killed(here: Deployment, far: Path) -> None:
    with here.started("up", f"git:{far}") as running:
        wait_scanned(running)
        running.signal(signal.SIGKILL)
        running.ended()
    done = here.run("scan", f"git:{far}", seconds=60)
    assert (done.code, "a running runtime scans" in done.stderr) == (0, False), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="does not apply: only POSIX stops processes by signals")
def test_a_scan_brings_its_own_workers_when_those_it_waits_for_die(here: Deployment, far: Path) -> None:
    with here.started("up", f"git:{far}") as running:
        wait_scanned(running)
        running.signal(signal.SIGSTOP)  # takes nothing more, and still looks alive
        asked = subprocess.Popen(
            [*COMMAND, "scan", f"git:{far}"],
            env=here.environment(),
            cwd=here.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert asked.stderr is not None
        assert "a running runtime scans" in asked.stderr.readline()
        running.signal(signal.SIGKILL)
        running.ended()
        _, told = asked.communicate(timeout=60)
    assert (asked.returncode, "1 target scanned" in told) == (0, True), told


def test_a_scan_of_a_paused_source_ends_with_3_and_says_what_to_do(here: Deployment, far: Path) -> None:
    assert here.run("scan", f"git:{far}").code == 0
    assert here.run("sources", "pause", f"git:{far}", "--why", "a test").code == 0
    done = here.run("scan", f"git:{far}", seconds=60)
    assert done.code == 3
    assert "is paused: `resweep sources resume" in done.stderr

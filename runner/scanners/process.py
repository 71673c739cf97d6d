"""Runs a scanner, or git, so that it can waste at most its budget and leaves nothing behind.

Every run goes through the guardian (``guardian.py``): own session, clean environment, private folder, limits on time,
memory, processes, file size, disk and output, and the end of the whole tree whatever dies first. One guardian serves
one worker process, however many threads scan in it; it costs one start of Python per process, not per run.
"""

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Self

from ...sources.base import CommandResult, CommandRunner
from .channel import as_result, await_answer, memory_file, read_start, readable
from .foldertree import remove_tree
from .leftovers import MARKER, SWEEP_LOCK, kill_marked, locked, sweep
from .limits import Ended, Limits, ProcessResult
from .processtree import END_SECONDS, LINUX

_SLACK_SECONDS = END_SECONDS * 2 + 5  # a keeper that says nothing for so long is lost
_LOG_TAIL_BYTES = 2000
# The guardian's interpreter sees neither site-packages nor this package: only the files of this folder that it names.
_BOOT = """
import sys, types
package = types.ModuleType("resweep_guardian")
package.__path__ = [sys.argv[1]]
sys.modules["resweep_guardian"] = package
from resweep_guardian.guardian import main
sys.exit(main(sys.argv[2:]))
"""
_CLOSED = "the guard is closed: nothing can be run any more"


class Guard:
    """The worker's side: starts the guardian when first needed, starts it again if it died, hands runs to it.

    ``root`` holds a private folder for this process; leftovers of processes that are dead are removed from it when
    the guard is made. All methods may be called from any thread.
    """

    def __init__(self, root: Path, *, python: str = sys.executable) -> None:
        """Make the private folder, sweep what dead owners left. Raises ``OSError`` when ``root`` can't be written."""
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._root = root
        self._python = python
        self._owner = secrets.token_hex(12)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._idle: list[socket.socket] = []
        self._busy: set[socket.socket] = set()
        self._closed = False
        with locked(root / SWEEP_LOCK):
            self._swept = sweep(root)
            self._held = os.open(root / f"{self._owner}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX)
            self.folder = root / self._owner
            self.folder.mkdir(mode=0o700)

    @property
    def swept(self) -> int:
        """How many dead owners' folders were removed at the start."""
        return self._swept

    @property
    def guardian_pid(self) -> int | None:
        """The guardian's process id, for tests and the doctor; None before the first run."""
        return self._process.pid if self._process else None

    @contextlib.contextmanager
    def work_folder(self) -> Generator[Path]:
        """A private folder for one scan, mode 0700, removed afterwards whatever was put into it.

        When this process is killed the guardian removes it; when that is killed too, the next guard on the same root.
        """
        if self._closed:
            raise RuntimeError(_CLOSED)
        path = self.folder / secrets.token_hex(8)
        path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            remove_tree(str(path))

    def run(  # noqa: PLR0913 - a process has that many sides
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        limits: Limits,
        stdout: Path,
        stderr: Path,
        cancel: threading.Event | None = None,
        scratch: Path | None = None,
    ) -> ProcessResult:
        """Run ``argv`` to its end, or to the end of its budget; never raises for what the program does.

        ``env`` is the whole environment. ``stdout`` and ``stderr`` are created with mode 0600. ``scratch`` is the
        folder whose size is limited by ``work_bytes``.
        """
        with contextlib.ExitStack() as files:
            null = files.enter_context(open(os.devnull, "rb"))
            out = files.enter_context(open(stdout, "wb", opener=_private))
            err = files.enter_context(open(stderr, "wb", opener=_private))
            fds = (null.fileno(), out.fileno(), err.fileno())
            return self._run(fds, argv, cwd=cwd, env=env, limits=limits, cancel=cancel, scratch=scratch)

    def command_runner(self, *, limits: Limits | None = None, cancel: threading.Event | None = None) -> CommandRunner:
        """What ``sources`` runs its commands with: output in memory, cut at the caller's limit."""
        base = limits or Limits()

        def run_command(
            argv: Sequence[str],
            *,
            cwd: Path,
            env: Mapping[str, str],
            seconds: float,
            output_limit_bytes: int,
            stdin: bytes | None = None,
        ) -> CommandResult:
            budget = replace(base, seconds=min(seconds, base.seconds), output_bytes=output_limit_bytes)
            with contextlib.ExitStack() as files:
                given = files.enter_context(memory_file(stdin))
                out = files.enter_context(memory_file(b""))
                err = files.enter_context(memory_file(b""))
                fds = (given.fileno(), out.fileno(), err.fileno())
                result = self._run(fds, argv, cwd=cwd, env=env, limits=budget, cancel=cancel)
                stdout, stderr = (read_start(file, output_limit_bytes) for file in (out, err))
            if result.ended is not Ended.EXIT and result.error:
                stderr += f"\n{result.error}".encode()
            return CommandResult(
                exit_code=result.exit_code,
                stdout=stdout,
                stderr=stderr,
                timed_out=result.ended is Ended.TIME,
                truncated=result.ended is Ended.OUTPUT,
            )

        return run_command

    def close(self) -> None:
        """End all runs, the guardian, and remove the private folder. May be called twice."""
        with self._lock:
            self._closed = True
            for keeper in self._busy:  # their runs end as if this process had died
                with contextlib.suppress(OSError):
                    keeper.shutdown(socket.SHUT_RDWR)
            for keeper in self._idle:
                keeper.close()
            self._idle.clear()
            if self._control is not None:
                self._control.close()
                self._control = None
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_SECONDS + _SLACK_SECONDS)
                self._process = None
            if self._held >= 0:
                remove_tree(str(self.folder))
                (self._root / f"{self._owner}.lock").unlink(missing_ok=True)
                os.close(self._held)
                self._held = -1

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # --- inside ---

    def _run(
        self,
        fds: tuple[int, int, int],
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        limits: Limits,
        cancel: threading.Event | None,
        scratch: Path | None = None,
    ) -> ProcessResult:
        if cancel is not None and cancel.is_set():
            return ProcessResult(ended=Ended.CANCELLED, exit_code=-int(signal.SIGKILL))
        marker = f"{self._owner}:{secrets.token_hex(8)}"
        request = json.dumps(
            {
                "argv": list(argv),
                "cwd": str(cwd),
                "env": {**env, MARKER: marker},
                "scratch": str(scratch) if scratch else None,
                "grace": limits.grace_seconds,
                "limits": {
                    "seconds": limits.seconds,
                    "memory_bytes": limits.memory_bytes,
                    "processes": limits.processes,
                    "file_bytes": limits.file_bytes,
                    "output_bytes": limits.output_bytes,
                    "work_bytes": limits.work_bytes,
                    "open_files": limits.open_files,
                },
            }
        ).encode()
        keeper = self._take_keeper()
        try:
            socket.send_fds(keeper, [len(request).to_bytes(4, "big")], fds)
            keeper.sendall(request)
            answer = await_answer(keeper, limits.seconds + _SLACK_SECONDS, cancel)
        except OSError as error:
            answer = {"ended": Ended.LOST, "error": f"the guardian's keeper is gone: {error}"}
        result = as_result(answer)
        if result.ended is Ended.LOST:
            # The scanner itself died with its keeper, what it started fell to the guardian. Should that be dead as
            # well, the marker in their environment still finds them.
            kill_marked(marker)
            result = replace(result, error=f"{result.error or 'no answer'}{self._guardian_log()}")
        # A keeper that was told to stop may hold that word still unread, so it does not serve again.
        told = cancel is not None and cancel.is_set()
        self._give_back(keeper, reusable=not told and result.ended is not Ended.LOST and not result.left_behind)
        return result

    def _take_keeper(self) -> socket.socket:
        """An idle keeper's socket, or a new keeper's; starts the guardian (again) when it is not there."""
        with self._lock:
            if self._closed:
                raise RuntimeError(_CLOSED)
            while self._idle:
                keeper = self._idle.pop()
                if not readable(keeper):  # an idle keeper has nothing to say but its end
                    self._busy.add(keeper)
                    return keeper
                keeper.close()
            mine, theirs = socket.socketpair()
            with theirs:
                for attempt in (1, 2):
                    control = self._control if self._process and self._process.poll() is None else None
                    control = control or self._start_guardian()
                    try:
                        socket.send_fds(control, [b"r"], [theirs.fileno()])
                        break
                    except OSError:
                        if attempt == 2:  # noqa: PLR2004 - the second of two
                            mine.close()
                            raise
                        control.close()
                        self._control = None
            self._busy.add(mine)
            return mine

    def _give_back(self, keeper: socket.socket, *, reusable: bool) -> None:
        with self._lock:
            self._busy.discard(keeper)
            if reusable and not self._closed:
                self._idle.append(keeper)
            else:
                keeper.close()

    def _start_guardian(self) -> socket.socket:
        if self._control is not None:
            self._control.close()
        mine, theirs = socket.socketpair()
        with theirs, open(self.folder / "guardian.log", "ab", opener=_private) as log:
            self._process = subprocess.Popen(
                [
                    self._python,
                    "-I",
                    "-S",
                    "-c",
                    _BOOT,
                    str(Path(__file__).parent),
                    str(theirs.fileno()),
                    str(self._held),
                    str(self.folder),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                cwd="/",
                pass_fds=(theirs.fileno(), self._held),
                start_new_session=True,
            )
        self._control = mine
        return mine

    def _guardian_log(self) -> str:
        with contextlib.suppress(OSError):
            text = (self.folder / "guardian.log").read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
            return f"; guardian: {text}" if text else ""
        return ""


@cache
def _shared_guard() -> Guard:
    import atexit  # noqa: PLC0415 - only for this convenience

    guard = Guard(Path(tempfile.gettempdir()) / f"resweep-{os.getuid()}")
    atexit.register(guard.close)
    return guard


def command_runner(guard: Guard | None = None) -> CommandRunner:
    """The guarded ``CommandRunner``; without ``guard`` from one that this process shares, below the temp folder."""
    return (guard or _shared_guard()).command_runner()


def guarantees() -> tuple[str, ...]:
    """What this platform cannot hold a scanner to, one sentence each; empty where everything holds (Linux)."""
    if LINUX:
        return ()
    return (
        "a scanner's processes that leave its process group are not killed (no subreaper on this platform)",
        "memory and the number of processes of a scan are not limited",
        "when guardian and worker are killed at once, a running scanner goes on until its CPU limit",
    )


def read_tail(path: Path, limit_bytes: int) -> bytes:
    """The last ``limit_bytes`` of a file, empty when there is none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit_bytes))
            return file.read(limit_bytes)
    except OSError:
        return b""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)

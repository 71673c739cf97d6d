"""The keeper: a process that holds one run after the other to its limits, and ends all of it.

Forked by the guardian, which says how the parts belong together. Standard library only.
"""

import array
import contextlib
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Mapping

from .foldertree import folder_bytes, largest_file, remove_tree
from .processtree import (
    END_SECONDS,
    LINUX,
    become_subreaper,
    descendants,
    die_with_parent,
    end_tree,
    gain_no_rights,
    proportional,
    resident,
)

TICK_SECONDS = 0.05  # how often a run's memory, processes and output are looked at
DISK_TICK_SECONDS = 1.0

_HEADER_BYTES = 4
_MAX_REQUEST_BYTES = 8 << 20
_MAX_FDS = 4
_STREAMS = 3
_EXEC_FAILED = 127


class Run:
    """One scanner process and what is watched of it."""

    def __init__(self, request: Mapping[str, object], run: socket.socket, files: tuple[int, int, int]) -> None:
        self.argv = [str(part) for part in request["argv"]]  # type: ignore[attr-defined]
        self.cwd = str(request["cwd"])
        self.env = {str(k): str(v) for k, v in request["env"].items()}  # type: ignore[attr-defined]
        self.limits: dict[str, float] = dict(request["limits"])  # type: ignore[call-overload]
        self.scratch = request.get("scratch")
        self.grace = float(request.get("grace", 0.0))  # type: ignore[arg-type]
        self.socket = run
        self.files = files
        self.pid = 0
        self.pidfd: int | None = None
        self.peak_memory = 0
        self.peak_processes = 0
        self.started = time.monotonic()
        self.page = os.sysconf("SC_PAGE_SIZE")

    def run(self) -> dict[str, object]:
        """Start, watch, end; give the answer for the worker."""
        error = self.start()
        if error is not None:
            return {"ended": "not_started", "exit_code": _EXEC_FAILED, "seconds": 0.0, "error": error}
        try:
            return self.finish(self.watch())
        finally:
            if self.pidfd is not None:
                os.close(self.pidfd)

    def start(self) -> str | None:
        """Fork and exec; the text of what went wrong, or None."""
        keeper = os.getpid()
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._become(keeper, writer)
            except BaseException as error:  # noqa: BLE001 - a forked child must never return into this program
                with contextlib.suppress(OSError):
                    os.write(writer, f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:2000])
            finally:
                os._exit(_EXEC_FAILED)
        os.close(writer)
        with os.fdopen(reader, "rb") as errors:
            text = errors.read()
        if text:
            os.waitpid(self.pid, 0)
            return text.decode("utf-8", "replace")
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.pidfd = os.pidfd_open(self.pid)
        return None

    def _become(self, keeper: int, writer: int) -> None:
        """In the child: drop everything of ours, take the limits on, become the scanner."""
        os.setsid()
        die_with_parent()
        gain_no_rights()
        if os.getppid() != keeper:  # it died before the line above took hold
            os._exit(_EXEC_FAILED)
        for target, source in enumerate(self.files):
            os.dup2(source, target)
        os.closerange(3, writer)
        os.closerange(writer + 1, 4096)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write("500")  # when memory runs out the scanner goes first, not the worker or the database
        seconds = int(self.limits["seconds"]) + 5
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_FSIZE, int(self.limits["file_bytes"]))
        _limit(resource.RLIMIT_NOFILE, int(self.limits["open_files"]))
        _limit(resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1))  # holds even when this keeper is stopped
        os.umask(0o077)
        os.chdir(self.cwd)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve(_program(self.argv[0], self.env), self.argv, self.env)  # noqa: S606 - what a keeper is for

    def watch(self) -> str:
        """Wait until the run is over or must be; say why (a value of ``process.Ended``)."""
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        if self.pidfd is not None:
            poller.register(self.pidfd, select.POLLIN)
        tick = TICK_SECONDS if self.pidfd is not None else 0.005
        next_disk = self.started + DISK_TICK_SECONDS
        while True:
            remaining = self.started + self.limits["seconds"] - time.monotonic()
            ready = dict(poller.poll(max(0.0, min(tick, remaining)) * 1000))
            may_be_over = self.pidfd is None or self.pidfd in ready
            if may_be_over and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return self._over_output() or "exit"
            if self.socket.fileno() in ready:
                return "worker" if self._told() == b"" else "cancelled"
            if remaining <= 0:
                return "time"
            cause = self._over_memory() or self._over_output()
            if cause is None and time.monotonic() >= next_disk:
                next_disk = time.monotonic() + DISK_TICK_SECONDS
                if self.scratch and folder_bytes(str(self.scratch)) > self.limits["work_bytes"]:
                    cause = "disk"
            if cause is not None:
                return cause

    def _told(self) -> bytes:
        try:
            return self.socket.recv(1)
        except OSError:
            return b""

    def _over_memory(self) -> str | None:
        pids = descendants(os.getpid())
        memory = sum(resident(pid, self.page) for pid in pids)
        if memory > self.limits["memory_bytes"] and len(pids) > 1:
            memory = sum(proportional(pid) or resident(pid, self.page) for pid in pids)
        self.peak_memory = max(self.peak_memory, memory)
        self.peak_processes = max(self.peak_processes, len(pids))
        if len(pids) > self.limits["processes"]:
            return "processes"
        return "memory" if memory > self.limits["memory_bytes"] else None

    def _over_output(self) -> str | None:
        over = any(os.fstat(fd).st_size > self.limits["output_bytes"] for fd in self.files[1:])
        return "output" if over else None

    def finish(self, ended: str) -> dict[str, object]:
        """End whatever is left and collect the figures."""
        seconds = time.monotonic() - self.started
        if ended in ("time", "cancelled", "worker") and self.grace > 0:
            # A moment for git to remove its lock files; whoever does not use it is killed below all the same.
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGTERM)
            self._wait_dead(self.grace)
        if ended != "exit":
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            self._wait_dead(END_SECONDS)
        try:
            pid, status, usage = os.wait4(self.pid, 0 if ended == "exit" else os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else -int(signal.SIGKILL)
            cpu = usage.ru_utime + usage.ru_stime
            peak = usage.ru_maxrss * (1024 if LINUX else 1)
        except ChildProcessError:
            code, cpu, peak = -int(signal.SIGKILL), 0.0, 0
        if not LINUX:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        stragglers, left = end_tree()
        if ended == "exit" and code != 0:
            ended = self._hidden_limit(code)
        return {
            "ended": ended,
            "exit_code": code,
            "seconds": seconds,
            "cpu_seconds": cpu,
            "peak_memory_bytes": max(self.peak_memory, peak),
            "peak_processes": max(1, self.peak_processes),
            "stragglers": stragglers,
            "left_behind": left,
            "error": None,
        }

    def _hidden_limit(self, code: int) -> str:
        """A limit that the kernel kept and the program died of, in its own way: by signal, by shell, by exit code."""
        if code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
            return "time"
        limit = int(self.limits["file_bytes"])
        if code in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ) or any(
            os.fstat(fd).st_size >= limit for fd in self.files[1:]
        ):
            return "file_size"
        return "file_size" if self.scratch and largest_file(str(self.scratch)) >= limit else "exit"

    def _wait_dead(self, seconds: float) -> None:
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            try:
                if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    return
            except ChildProcessError:
                return
            time.sleep(0.002)


def _program(name: str, env: Mapping[str, str]) -> str:
    """Where a program lies; ``os.execvpe`` would import a module at each run to know it."""
    if "/" in name:
        return name
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = f"{folder}/{name}"
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(errno.ENOENT, f"no program {name!r} on PATH {env.get('PATH', os.defpath)!r}")


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _read_exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = source.recv(min(65536, count - len(data)))
        if not part:
            msg = "the worker closed the run before saying what to run"
            raise EOFError(msg)
        data += part
    return data


def keep(run: socket.socket) -> None:
    """The whole life of a keeper: one run after the other, until the worker closes the socket."""
    become_subreaper()
    gc.enable()
    while True:
        header, fds = receive(run, _HEADER_BYTES)
        if len(header) < _HEADER_BYTES or len(fds) != _STREAMS:
            return
        size = int.from_bytes(header, "big")
        if size > _MAX_REQUEST_BYTES:
            msg = f"a run request of {size} bytes is larger than {_MAX_REQUEST_BYTES}"
            raise ValueError(msg)
        one = Run(json.loads(_read_exactly(run, size)), run, (fds[0], fds[1], fds[2]))
        result = one.run()
        ended = result["ended"]
        for fd in fds:
            os.close(fd)
        try:
            run.sendall(json.dumps(result).encode() + b"\n")
        except OSError:  # nobody is left to read it, nor to clean up
            ended = "worker"
        if ended == "worker" and one.scratch:
            remove_tree(str(one.scratch))
        if ended == "worker" or result.get("left_behind"):
            return


def receive(source: socket.socket, count: int) -> tuple[bytes, list[int]]:
    """Up to ``count`` bytes and the file descriptors that came with them; no bytes when the other side is gone."""
    fds = array.array("i")
    try:
        data, ancillary, _, _ = source.recvmsg(count, socket.CMSG_LEN(_MAX_FDS * fds.itemsize))
    except OSError:
        return b"", []
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)  # noqa: FBT003 - the library's own signature
    return data, list(fds)

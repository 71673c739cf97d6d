"""The guardian: a small process that starts scanners for one worker and outlives it long enough to end them.

It is run as a file of its own (``python -I -S guardian.py``), imports the standard library only, and has one thread.

    worker ──control socket── guardian ──fork── keeper (one run at a time) ──fork, exec── scanner and what it starts
       └───────────────run socket, one per keeper────┘

Every arrow is watched from both sides, so that any one of them may be killed with -9:

* The worker dies: each keeper reads the end of its run socket, the guardian the end of the control socket. The keepers
  end their runs, the guardian removes the worker's folder and leaves.
* A keeper dies: its scanner dies by ``PR_SET_PDEATHSIG`` (safe here: the keeper has one thread), whatever the scanner
  started falls to the guardian, which is the next subreaper, and is killed there. The worker reads the socket's end.
* The guardian dies: keepers go on, they need only the run socket. The worker starts another guardian for the next run.

A keeper is a subreaper: everything a run starts, also after ``setsid`` and a double fork, becomes its child. A run has
ended when ``waitpid`` says that there are no children left, and not before.

Outside Linux there is no subreaper, no ``PR_SET_PDEATHSIG`` and no ``/proc``: only the run's process group is killed,
and memory and processes are not limited. ``process.guarantees()`` says so to whoever asks.
"""

import array
import contextlib
import errno
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

LINUX = sys.platform.startswith("linux")
TICK_SECONDS = 0.05  # how often a run's memory, processes and output are looked at
DISK_TICK_SECONDS = 1.0
END_SECONDS = 10.0  # how long a killed tree may take to be gone before it is reported as left behind
MARKER = "RESWEEP_RUN"  # in the environment of every run: names the owner, for sweeps after a crash

_HEADER_BYTES = 4
_MAX_REQUEST_BYTES = 8 << 20
_MAX_FDS = 4
_STREAMS = 3
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_EXEC_FAILED = 127
_DISK_ENTRIES = 50_000


# --- What only Linux has ---------------------------------------------------------------------------------------------


def _load_prctl() -> Callable[[int, int], None]:
    """``prctl`` of the C library, a no-op elsewhere; loaded once, before any fork: it costs milliseconds."""
    if not LINUX:
        return lambda _option, _value: None
    import ctypes  # noqa: PLC0415 - only the guardian process needs it, and it is slow to load

    call = ctypes.CDLL(None, use_errno=True).prctl
    return lambda option, value: None if call(option, value, 0, 0, 0) == 0 else None


_prctl: Callable[[int, int], None] = lambda _option, _value: None  # noqa: E731 - replaced by main()


def _parent_map() -> dict[int, list[int]]:
    """Children by parent, from a walk over ``/proc``: for kernels without ``CONFIG_PROC_CHILDREN``."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as stat:
                    after_name = stat.read().rpartition(b")")[2].split()
                children.setdefault(int(after_name[1]), []).append(int(name))
    return children


def descendants(root: int) -> list[int]:
    """Everything below ``root`` as the kernel knows it now; empty outside Linux.

    A process that forks during the walk may be missed, so callers repeat it until ``waitpid`` finds no child.
    """
    if not LINUX:
        return []
    parents = None if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _parent_map()
    found: list[int] = []
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if parents is not None:
            below = parents.get(pid, [])
        else:
            below = []
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as listing:
                        below.extend(int(child) for child in listing.read().split())
        found.extend(below)
        waiting.extend(below)
    return found


def _group_of(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[2])
    return None


def _resident(pid: int, page: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as statm:
        return int(statm.read().split()[1]) * page
    return 0


def _proportional(pid: int) -> int:
    """Memory with shared pages split between their users: dearer to ask, asked only when the plain sum is too high."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
        for line in rollup:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


# --- Removing what a hostile program wrote ---------------------------------------------------------------------------


def remove_tree(path: str) -> None:
    """Remove a folder that somebody hostile filled: unreadable folders, links, names of any bytes, any depth.

    Links are removed, never followed. Sub-folders are first moved up to the top, so neither recursion nor a path
    longer than the system allows can stop it. What is already gone is no error.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(path)
        return
    except PermissionError:
        os.chmod(path, 0o700)
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    moved = 0
    try:
        with contextlib.suppress(OSError):
            os.fchmod(top, 0o700)
        while True:
            with os.scandir(top) as entries:
                names = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
            if not names:
                break
            for name, is_folder in names:
                if is_folder:
                    moved = _lift(top, name, moved)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=top)
    finally:
        os.close(top)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)


def _lift(top: int, name: bytes, moved: int) -> int:
    """Empty one folder below ``top``: unlink its files, move its folders to the top, remove it."""
    try:
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    except FileNotFoundError:
        return moved
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=top)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        os.fchmod(inner, 0o700)
        with os.scandir(inner) as entries:
            below = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
        for child, is_folder in below:
            if is_folder:
                # A folder without write permission can be moved only after it has been given to its owner again.
                with contextlib.suppress(OSError):
                    os.chmod(child, 0o700, dir_fd=inner)
                while True:
                    moved += 1
                    try:
                        os.rename(child, b".resweep-lifted-%d" % moved, src_dir_fd=inner, dst_dir_fd=top)
                        break
                    except OSError as error:
                        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                            raise  # the three say that the new name is taken: try the next
            else:
                os.unlink(child, dir_fd=inner)
    finally:
        os.close(inner)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(name, dir_fd=top)
    return moved


def folder_bytes(path: str) -> int:
    """Bytes on disk below ``path``, links not followed; stops counting after ``_DISK_ENTRIES`` entries."""
    return sum(on_disk for _, on_disk in _files(path))


def _files(path: str) -> Iterator[tuple[int, int]]:
    seen = 0
    waiting = [path]
    while waiting and seen < _DISK_ENTRIES:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        found = entry.stat(follow_symlinks=False)
                        yield found.st_size, found.st_blocks * 512


def largest_file(path: str) -> int:
    """Size of the largest file below ``path``, with the bounds of ``folder_bytes``."""
    return max((size for size, _ in _files(path)), default=0)


# --- Ending a tree ---------------------------------------------------------------------------------------------------


def end_tree(*, spare: Iterable[int] = ()) -> tuple[int, int]:
    """Kill and reap every child of this process and all below, but for ``spare``; say (killed, left behind).

    Process groups are killed as groups: the kernel does that in one step, so a fork bomb cannot outrun it.
    """
    spared = set(spare)
    me = os.getpid()
    my_group = os.getpgrp()
    killed: set[int] = set()
    give_up = time.monotonic() + END_SECONDS
    pause = 0.0005
    while True:
        alive = [pid for pid in _below(me, spared) if not _is_zombie(pid)]
        groups = {group for pid in alive if (group := _group_of(pid)) is not None and group not in (0, 1, my_group)}
        for group in groups:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        for pid in alive:
            killed.add(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not _reap(spared) and not _below(me, spared):
            return len(killed), 0
        if time.monotonic() > give_up:
            return len(killed), len(_below(me, spared))
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def _below(me: int, spared: set[int]) -> list[int]:
    """What is below this process, except spared children and what is below those."""
    if not spared:
        return descendants(me)
    kept = set(spared)
    for pid in spared:
        kept.update(descendants(pid))
    return [pid for pid in descendants(me) if pid not in kept]


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    return True


def _reap(spared: set[int]) -> bool:
    """Collect dead children; True while there may be more to come."""
    if spared:  # waitpid(-1) would eat the exit of a spared child
        for pid in descendants(os.getpid()):
            if pid not in spared:
                with contextlib.suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)
        return False
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


# --- The keeper: one run ---------------------------------------------------------------------------------------------


class _Run:
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
        import resource  # noqa: PLC0415 - loaded already by the guardian, not there on every platform

        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
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
        os.execve(_program(self.argv[0], self.env), self.argv, self.env)

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
            if self.pidfd is None or self.pidfd in ready:
                if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
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
        memory = sum(_resident(pid, self.page) for pid in pids)
        if memory > self.limits["memory_bytes"] and len(pids) > 1:
            memory = sum(_proportional(pid) or _resident(pid, self.page) for pid in pids)
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
        if code in (-signal.SIGXFSZ, 128 + signal.SIGXFSZ) or any(os.fstat(fd).st_size >= limit for fd in self.files[1:]):
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
    import resource  # noqa: PLC0415 - see _become

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


def _keep(run: socket.socket) -> None:
    """The whole life of a keeper: one run after the other, until the worker closes the socket."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    gc.enable()
    while True:
        header, fds = _receive(run, _HEADER_BYTES)
        if len(header) < _HEADER_BYTES or len(fds) != _STREAMS:
            return
        size = int.from_bytes(header, "big")
        if size > _MAX_REQUEST_BYTES:
            msg = f"a run request of {size} bytes is larger than {_MAX_REQUEST_BYTES}"
            raise ValueError(msg)
        one = _Run(json.loads(_read_exactly(run, size)), run, (fds[0], fds[1], fds[2]))
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


# --- The guardian ----------------------------------------------------------------------------------------------------


def _receive(source: socket.socket, count: int) -> tuple[bytes, list[int]]:
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
        os.set_inheritable(fd, False)
    return data, list(fds)


def main(arguments: list[str]) -> int:
    """Serve one worker until its end of the control socket is gone.

    Arguments: number of the control socket, number of the held lock file, the owner's folder, which is removed at the
    end.
    """
    global _prctl  # noqa: PLW0603 - loaded once, before any fork
    import resource  # noqa: F401, PLC0415 - the same

    _prctl = _load_prctl()
    gc.disable()
    gc.freeze()  # a collection in a keeper would copy every page it shares with this process
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    os.set_inheritable(int(arguments[1]), False)
    folder = arguments[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # it ends when its worker does, not when somebody presses Ctrl-C
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    worker = os.getppid()
    keepers: set[int] = set()
    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    while True:
        ready = dict(poller.poll(1000))
        if wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)
        _look_after(keepers)
        if control.fileno() in ready:
            data, fds = _receive(control, 1)
            if not data:
                break
            keepers.update(_fork_keeper(fd, control) for fd in fds)
        if os.getppid() != worker:  # it died while something else still holds its end of the socket
            break
    _last_rites(keepers, folder)
    return 0


def _fork_keeper(run_fd: int, control: socket.socket) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            _keep(socket.socket(fileno=run_fd))
        except BaseException as error:  # noqa: BLE001 - a forked child must never return into the guardian's loop
            with contextlib.suppress(OSError):
                os.write(run_fd, json.dumps({"ended": "lost", "error": repr(error)}).encode() + b"\n")
            end_tree()
        finally:
            os._exit(0)
    os.close(run_fd)
    return pid


def _look_after(keepers: set[int]) -> None:
    """Collect keepers that ended; kill what a keeper left that was itself killed."""
    for pid in list(keepers):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                keepers.discard(pid)
    if LINUX and any(pid not in keepers for pid in _direct_children()):
        end_tree(spare=keepers)


def _direct_children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as listing:
            return [int(pid) for pid in listing.read().split()]
    except OSError:
        return _parent_map().get(me, [])


def _last_rites(keepers: set[int], folder: str) -> None:
    """The worker is gone: wait for the keepers to end their runs, end what is left, remove its folder."""
    give_up = time.monotonic() + END_SECONDS + 5
    while keepers and time.monotonic() < give_up:
        _look_after(keepers)
        time.sleep(0.005)
    end_tree()
    with contextlib.suppress(OSError):
        remove_tree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

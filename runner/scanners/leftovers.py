"""What a worker that is dead may have left: folders under the runs' root, and processes that carry its mark.

The guardian removes both at once; this is for the case that it was killed as well. Whose lock is free is dead: a
process id may have been given to somebody else since, a lock that the kernel let go of cannot.
"""

# ruff: noqa: PTH208, PTH123 - a walk over /proc, by name

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Generator
from pathlib import Path

from .foldertree import remove_tree
from .processtree import LINUX

MARKER = "RESWEEP_RUN"  # in the environment of every run: OWNER:RUN
SWEEP_LOCK = "sweep.lock"


def kill_marked(marker: str) -> int:
    """Kill every process of ours whose environment carries ``marker`` (a prefix); say how many. Linux only."""
    if not LINUX:
        return 0
    wanted = f"{MARKER}={marker}".encode()
    killed: set[int] = set()
    for _ in range(20):
        found = False
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid() and _carries(name, wanted):
                found = True
                killed.add(int(name))
                with contextlib.suppress(OSError):
                    os.kill(int(name), signal.SIGKILL)
        if not found:
            break
        time.sleep(0.01)
    return len(killed)


def _carries(pid: str, wanted: bytes) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environ:
        return any(entry.startswith(wanted) for entry in environ.read().split(b"\0"))
    return False


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock on a file, made when missing, for the block; waits for whoever holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def sweep(root: Path) -> int:
    """Remove the folders of owners that are dead, and end their processes: whose lock is free is dead."""
    removed = 0
    for lock in root.glob("*.lock"):
        if lock.name == SWEEP_LOCK:
            continue
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            kill_marked(f"{lock.stem}:")
            remove_tree(str(lock.with_suffix("")))
            lock.unlink(missing_ok=True)
            removed += 1
        finally:
            os.close(fd)
    return removed

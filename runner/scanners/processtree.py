"""What the kernel knows of this process's descendants, and how all of them are ended; on Linux only.

Standard library only: the guardian uses it.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable
from functools import cache

TYPE_CHECKING = False  # typing itself is slow to load
if TYPE_CHECKING:
    import ctypes

LINUX = sys.platform.startswith("linux")
END_SECONDS = 10.0  # how long a killed tree may take to be gone before it is reported as left behind

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


@cache
def _library() -> "ctypes.CDLL":
    import ctypes  # noqa: PLC0415 - only the guardian process needs it, and it is slow to load

    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if LINUX:
        _library().prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Let whatever this process's descendants leave behind fall to this process. Asked first before any fork."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed when the parent's thread that forked dies: only for children of processes with one thread."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def gain_no_rights() -> None:
    """No set-uid program may be gained from here on: what is started can be killed."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


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
        below: list[int] = []
        if parents is not None:
            below = parents.get(pid, [])
        else:
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


def resident(pid: int, page: int) -> int:
    """Bytes of memory that a process holds; 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as statm:
        return int(statm.read().split()[1]) * page
    return 0


def proportional(pid: int) -> int:
    """Memory with shared pages split between their users: dearer to ask, asked only when the plain sum is too high."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
        for line in rollup:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def direct_children() -> list[int]:
    """The children of this process that are there now, zombies included."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as listing:
            return [int(pid) for pid in listing.read().split()]
    except OSError:
        return _parent_map().get(me, [])


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

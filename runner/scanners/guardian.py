"""The guardian: a small process that starts scanners for one worker and outlives it long enough to end them.

It runs in an interpreter of its own that sees these few files and the standard library only, and has one thread.

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

import contextlib
import gc
import json
import os
import select
import signal
import socket
import time

from .foldertree import remove_tree
from .keeper import keep, receive
from .processtree import END_SECONDS, LINUX, become_subreaper, direct_children, end_tree


def main(arguments: list[str]) -> int:
    """Serve one worker until its end of the control socket is gone.

    Arguments: number of the control socket, number of the held lock file, the owner's folder, which is removed at the
    end.
    """
    become_subreaper()
    gc.disable()
    gc.freeze()  # a collection in a keeper would copy every page it shares with this process
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    os.set_inheritable(int(arguments[1]), False)  # noqa: FBT003 - the library's own signature
    folder = arguments[2]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)  # it ends when its worker does, not when somebody presses Ctrl-C
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
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
            data, fds = receive(control, 1)
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
            keep(socket.socket(fileno=run_fd))
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
    if LINUX and any(pid not in keepers for pid in direct_children()):
        end_tree(spare=keepers)


def _last_rites(keepers: set[int], folder: str) -> None:
    """The worker is gone: wait for the keepers to end their runs, end what is left, remove its folder."""
    give_up = time.monotonic() + END_SECONDS + 5
    while keepers and time.monotonic() < give_up:
        _look_after(keepers)
        time.sleep(0.005)
    end_tree()
    with contextlib.suppress(OSError):
        remove_tree(folder)

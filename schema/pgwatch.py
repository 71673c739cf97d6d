"""Stops the embedded PostgreSQL when its last user was killed. Started alone: ``python -I -S pgwatch.py HOME DATA``.

It waits for the exclusive lock on ``users.lock``, which it can only get when nobody uses the server any more. It is a
file of its own, on the standard library alone, because it lives as long as the server does: it must stay small.
"""

import fcntl
import os
import signal
import sys
import time
from pathlib import Path


def _locked(path: Path, kind: int) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _postmaster(data: Path) -> int | None:
    try:
        number = int((data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").split("\n", 1)[0])
        return number if Path(f"/proc/{number}/cwd").resolve() == data else None
    except (OSError, ValueError):
        return None


def main(home: Path, data: Path) -> None:
    """Wait for the last user to go, then stop the server; end when it is gone or somebody else stopped it."""
    if _locked(home / "watch.lock", fcntl.LOCK_EX | fcntl.LOCK_NB) is None:
        return  # one watcher is enough
    while _postmaster(data) is not None and home.is_dir():
        users = _locked(home / "users.lock", fcntl.LOCK_EX)
        start = _locked(home / "start.lock", fcntl.LOCK_EX | fcntl.LOCK_NB)
        if users is None or start is None:  # somebody is starting: let it have the server
            for held in (users, start):
                if held is not None:
                    os.close(held)
            time.sleep(0.05)
            continue
        server = _postmaster(data)
        if server is not None:
            os.kill(server, signal.SIGINT)
        while _postmaster(data) is not None:
            time.sleep(0.05)
        return


if __name__ == "__main__":
    if os.fork() != 0:  # detached: nobody waits for us, no terminal ends us
        os._exit(0)
    os.setsid()
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""Stops the embedded PostgreSQL when its last user was killed. Started alone: ``python -I -S pgwatch.py HOME DATA``.

Four times a second it looks whether anybody still holds ``users.lock``; the kernel takes a killed process's lock away.
It looks only while it holds ``start.lock``, so that it is never in the way of somebody who starts or stops. It also
keeps the server's log small. It is a file of its own, on the standard library alone, because it lives as long as the
server does: it must stay small. While it lives it holds ``watch.lock``, which says to processes that can't see the
server (another container on the same folder) that there is one.
"""

import fcntl
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_PAUSE = 0.25
_LOOKS_PER_LOG_CHECK = 120
_LOG_BYTES = 32 * 1024 * 1024
_FOLDER_LINE = 4  # line 5 of postmaster.pid names the socket's folder


def _locked(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _pid_file(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _postmaster(data: Path) -> int | None:
    try:
        number = int(_pid_file(data)[0])
        return number if Path(f"/proc/{number}/cwd").resolve() == data else None
    except (OSError, ValueError, IndexError):
        return None


def _shorten_logs(data: Path) -> None:
    """Empty a log of the day that grew too long; the server appends, so that it goes on at the beginning."""
    for log in (data / "log").glob("*.log"):
        with suppress(OSError):
            if log.stat().st_size > _LOG_BYTES:
                os.truncate(log, 0)


def _stop(server: int, data: Path) -> None:
    folder = _pid_file(data)[_FOLDER_LINE : _FOLDER_LINE + 1]
    with suppress(ProcessLookupError):
        os.kill(server, signal.SIGINT)
    while _postmaster(data) is not None:
        time.sleep(0.05)
    with suppress(OSError):
        if folder and Path(folder[0]).name.startswith("resweep-"):
            Path(folder[0]).rmdir()


def main(home: Path, data: Path) -> None:
    """Wait for the last user to go, then stop the server; end when it is gone, whoever stopped it."""
    if _locked(home / "watch.lock") is None:
        return  # one watcher is enough
    looks = 0
    while (server := _postmaster(data)) is not None:
        start = _locked(home / "start.lock")
        if start is not None:
            if _locked(home / "users.lock") is not None:  # held until this process ends
                _stop(server, data)
                return
            os.close(start)
        looks += 1
        if looks % _LOOKS_PER_LOG_CHECK == 0:
            _shorten_logs(data)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    if os.fork() != 0:  # detached: nobody waits for us, no terminal ends us
        os._exit(0)
    os.setsid()
    with suppress(FileNotFoundError):  # the whole folder was removed: its server ends by itself
        main(Path(sys.argv[1]), Path(sys.argv[2]))

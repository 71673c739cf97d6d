"""Looks at the process of an embedded PostgreSQL and at the locks of its users; stops it when nobody is left."""

import fcntl
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from .errors import DatabaseUnavailable

PORT = 5432
"""The number in the socket's name; nothing listens on a network."""
_LOG_TAIL_LINES = 12
_FOLDER_LINE = 4  # line 5 of postmaster.pid names the socket's folder


def pid_file_lines(data: Path) -> list[str]:
    """The lines of ``postmaster.pid``: none without one, fewer than eight while the server starts."""
    try:
        return (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def postmaster_of(data: Path) -> psutil.Process | None:
    """The server of this folder, or None: the pid file's number must belong to a live process that works in it."""
    lines = pid_file_lines(data)
    if not lines or not lines[0].strip().isdecimal():
        return None
    try:
        process = psutil.Process(int(lines[0]))
        if process.status() == psutil.STATUS_ZOMBIE or Path(process.cwd()) != data:
            return None
    except (psutil.Error, OSError, OverflowError):
        return None
    return process


def stop_if_unused(home: Path, data: Path, timeout: float) -> bool:
    """Stop the server unless somebody still uses it, and remove its runtime folder; returns whether it was stopped.

    The caller holds ``start.lock``, without which the watcher touches nothing. Raises ``DatabaseUnavailable`` when
    the server does not end within ``timeout`` seconds.
    """
    users = os.open(home / "users.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not try_lock(users):
            return False
        process = postmaster_of(data)
        if process is None:
            return False
        folder = pid_file_lines(data)[_FOLDER_LINE : _FOLDER_LINE + 1]
        process.send_signal(signal.SIGINT)  # "fast": sessions are ended, nothing is lost
        wait_until(lambda: postmaster_of(data) is None, timeout, "the embedded PostgreSQL does not stop")
        with suppress(OSError):  # somebody else's file in it: leave it
            if folder and Path(folder[0]).name.startswith("resweep-"):
                Path(folder[0]).rmdir()
        return True
    finally:
        os.close(users)


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock if nobody holds one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_free(lock: Path) -> bool:
    """Tell whether nobody holds the lock of this file (one that is missing is free)."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def wait_until(met: Callable[[], bool], timeout: float, complaint: str | None) -> None:
    """Look every 20 ms; after ``timeout`` seconds raise ``DatabaseUnavailable`` (or return, without a complaint)."""
    deadline = time.monotonic() + timeout
    while not met():
        if time.monotonic() > deadline:
            if complaint is None:
                return
            message = f"{complaint} (waited {timeout:g} s)"
            raise DatabaseUnavailable(message)
        time.sleep(0.02)


def tail(text: str) -> str:
    """The last lines of a log on one line, for an error message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_LOG_TAIL_LINES:])

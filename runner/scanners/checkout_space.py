"""The room that the checkout cache takes on disk: counted by entry, the least recently held leaves first."""

import json
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from ...schema.clock import Clock

STATE_FILE = "state.json"
_LOOK_SECONDS = 30.0
_LOOK_SHARE = 50  # also look whenever a fiftieth of the limit was added since

TryLock = Callable[[str], AbstractContextManager[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    key: str
    used_at_ns: int
    size_bytes: int


class Space:
    """Keeps ``entries`` below ``limit_bytes``; entries that are locked are left alone."""

    def __init__(self, entries: Path, *, limit_bytes: int, clock: Clock) -> None:
        """``entries`` holds one folder an entry, each with a state file that knows its size and last use."""
        self._entries = entries
        self._limit = limit_bytes
        self._clock = clock
        self._guard = threading.Lock()
        self._grown = 0
        self._looked_at: float | None = None

    def grown(self, key: str, size_bytes: int, try_lock: TryLock) -> None:
        """An entry was updated and has this size now; looks at the whole cache when it is time to."""
        now = self._clock.monotonic()
        with self._guard:
            self._grown += size_bytes
            recent = self._looked_at is not None and now - self._looked_at < _LOOK_SECONDS
            if recent and self._grown < self._limit // _LOOK_SHARE:
                return
            self._looked_at, self._grown = now, 0
        self.trim(try_lock, keep=key)

    def trim(self, try_lock: TryLock, *, keep: str | None = None, limit: int | None = None) -> int:
        """Remove entries, oldest use first, until the rest fits into ``limit``; returns the bytes that remain."""
        limit = self._limit if limit is None else limit
        held = sorted(self._look(), key=lambda entry: entry.used_at_ns)
        total = sum(entry.size_bytes for entry in held)
        for entry in held:
            if total <= limit:
                break
            if entry.key == keep:
                continue
            with try_lock(entry.key) as taken:
                if taken:
                    self.remove(entry.key)
                    total -= entry.size_bytes
        return total

    def remove(self, key: str) -> None:
        """Remove an entry whose lock is held. It is renamed first, so that a crash leaves no half of one."""
        folder = self._entries / key
        trash = self._entries / f"trash-{key}-{os.getpid()}"
        try:
            folder.rename(trash)
        except FileNotFoundError:
            return
        shutil.rmtree(trash, ignore_errors=True)

    def _look(self) -> list[_Held]:
        held: list[_Held] = []
        with os.scandir(self._entries) as listing:
            for entry in listing:
                if entry.name.startswith("trash-"):
                    shutil.rmtree(entry.path, ignore_errors=True)
                    continue
                held.append(_measure(Path(entry.path)))
        return held


def _measure(folder: Path) -> _Held:
    try:
        state = folder / STATE_FILE
        used = state.stat().st_mtime_ns
        size = int(json.loads(state.read_bytes())["size_bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        # Never finished, or damaged: the first to go.
        return _Held(key=folder.name, used_at_ns=0, size_bytes=folder_bytes(folder))
    return _Held(key=folder.name, used_at_ns=used, size_bytes=size)


def folder_bytes(folder: Path) -> int:
    """Bytes that the regular files below a folder take on disk (allocated blocks)."""
    total, pending = 0, [os.fspath(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as listing:
                for entry in listing:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue
    return total

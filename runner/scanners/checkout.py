"""The checkout cache: bare copies of repositories under ``data_dir/checkouts``, one worker at a time on each.

A copy holds every branch and tag that is advertised (and HEAD's commit when it is on no branch), nothing unreachable
once history was rewritten, and never a work tree. An entry is locked for as long as it is held, across threads and
processes; a process killed at any moment leaves an entry that the next holder repairs.
"""

import fcntl
import hashlib
import os
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...schema.clock import Clock
from ...schema.errors import TargetFault
from ...schema.records import NotScanned
from ...schema.text import display
from ...sources import gitaddress
from ...sources.base import Access, CommandRunner
from ...sources.gitcommand import GitCommand
from ...sources.gitfaults import DiskFull
from .checkout_entry import Entry, EntryLimits
from .checkout_range import BlobCount, count_all, count_since, write_base
from .checkout_space import Space
from .checkout_tree import TreeLimits, TreeWritten, write_tree

_LOCK_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A held copy: what it contains is exactly what ``refs`` names, and ``digest`` stands for it."""

    path: Path  # the bare repository; read only, valid until the hold ends
    refs: Mapping[str, str]  # full names of branches and tags to hex object ids, tags unpeeled
    digest: bytes  # of refs and HEAD, comparable with an observation's revision
    tips: tuple[str, ...]  # peeled object ids of refs (and of a detached HEAD), sorted, distinct
    head: str | None  # the default branch's commit (or a detached HEAD's), hex
    default_branch: str | None  # full name
    rewritten: bool  # something covered before is unreachable now; it has been pruned
    not_scanned: tuple[NotScanned, ...]  # what the copy lacks: filtered blobs, history cut at the source


class CheckoutCache:
    """Bare repositories on disk, bounded by bytes, least recently held leave first."""

    def __init__(
        self,
        root: Path,
        *,
        git: GitCommand,
        clock: Clock,
        limit_bytes: int,
        max_blob_bytes: int | None = None,
        lock_seconds: float = 600.0,
        tree_limits: TreeLimits | None = None,
    ) -> None:
        """``limit_bytes`` bounds the whole cache, as far as entries are not held.

        ``max_blob_bytes`` leaves larger blobs out of copies (counted as not scanned); ``lock_seconds`` is how long to
        wait for an entry that another worker holds; ``tree_limits`` bounds every written tree.
        """
        self.root = root
        self._git = git
        self._clock = clock
        self._limits = EntryLimits(max_blob_bytes=max_blob_bytes)
        self._lock_seconds = lock_seconds
        self._tree_limits = tree_limits or TreeLimits()
        self._locks = root / "locks"
        self._entries = root / "entries"
        for folder in (self._locks, self._entries):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._space = Space(self._entries, limit_bytes=limit_bytes, clock=clock)

    def with_runner(self, runner: CommandRunner) -> "CheckoutCache":
        """The same cache whose programs are started by ``runner`` (one that a lost lease cancels)."""
        other = object.__new__(CheckoutCache)
        other.__dict__.update(self.__dict__)
        other._git = self._git.with_runner(runner)
        return other

    @contextmanager
    def hold(
        self, address: str, kind: str = "git", *, access: Access | None = None
    ) -> Generator[Repository, None, None]:
        """Bring the copy up to date and keep it locked for the block.

        One ``ls-remote`` (nothing but file reads for plain local repositories) proves that nothing changed.
        Raises ``SourceFault`` for the network's and server's failures, ``TargetFault`` for this repository's:
        ``not_visible`` when its path does not exist here (release the claim), ``busy`` when another worker holds the
        entry for too long, ``broken``, ``not_found``, ``unreadable``, ``too_large``, ``time_limit``, ``too_many_refs``.
        """
        if gitaddress.is_local(address) and not Path(gitaddress.local_path(address)).is_dir():
            message = f"{display(address)} does not exist on this machine (moved, removed or not mounted)"
            raise TargetFault("not_visible", message)
        access = access or Access(protocols=gitaddress.protocols(address))
        key = entry_key(address, kind)
        with self._locked(key, address):
            entry = Entry(self._entries / key, git=self._git, limits=self._limits)
            advertised = self._git.advertised(address, access)
            try:
                state, rewritten, updated = entry.bring_up_to_date(
                    advertised, address=address, kind=kind, access=access
                )
            except DiskFull:
                # Other copies can be made again; this one is needed now.
                self._space.trim(self._try_locked, keep=key, limit=0)
                state, rewritten, updated = entry.bring_up_to_date(
                    advertised, address=address, kind=kind, access=access
                )
            if updated:
                self._space.grown(key, state.size_bytes, self._try_locked)
            yield Repository(
                path=entry.repository,
                refs=state.refs,
                digest=state.digest,
                tips=state.tips,
                head=state.head,
                default_branch=state.default_branch,
                rewritten=rewritten,
                not_scanned=state.not_scanned,
            )
            entry.touch()

    def discard(self, address: str, kind: str = "git") -> None:
        """Remove a copy that a scanner found to be corrupt; the next hold makes it anew. Waits for the entry's lock."""
        key = entry_key(address, kind)
        with self._locked(key, address):
            self._space.remove(key)

    def trim(self) -> int:
        """Remove least recently held entries until the cache is within its limit; returns the bytes that remain."""
        return self._space.trim(self._try_locked)

    def blobs_since(self, repository: Repository, covered_tips: Collection[str]) -> BlobCount | None:
        """How many blobs, and of how many bytes, a scan from ``covered_tips`` to the present has to read.

        No covered tips: all of them. None: a range cannot say it (a covered object is gone, or a tag names no commit),
        so the scan must be whole.
        """
        if not covered_tips:
            return count_all(self._git, repository.path)
        return count_since(self._git, repository.path, tips=repository.tips, covered=frozenset(covered_tips))

    def synthetic_base(self, repository: Repository, covered_tips: Collection[str]) -> str | None:
        """The commit (hex) whose parents are all covered tips, on the empty tree; kept until the next update.

        None when no covered tip is a commit, or one is missing.
        """
        return write_base(self._git, repository.path, frozenset(covered_tips))

    def write_tree(self, repository: Repository, dest: Path, limits: TreeLimits | None = None) -> TreeWritten:
        """Write the default branch's files into the new folder ``dest``, without filters, hooks or links."""
        return write_tree(self._git, repository.path, repository.head, dest, limits or self._tree_limits)

    @contextmanager
    def _locked(self, key: str, address: str) -> Generator[None, None, None]:
        handle = os.open(self._locks / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            ends = self._clock.monotonic() + self._lock_seconds
            while not _take(handle):
                if self._clock.monotonic() >= ends:
                    message = f"the copy of {display(address)} is held by another worker; it is tried again later"
                    raise TargetFault("busy", message)
                self._clock.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(handle)  # closing lets go of the lock

    @contextmanager
    def _try_locked(self, key: str) -> Generator[bool, None, None]:
        handle = os.open(self._locks / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield _take(handle)
        finally:
            os.close(handle)


def entry_key(address: str, kind: str) -> str:
    """The folder name of an entry: 32 hex digits of a hash over kind and address."""
    text = f"{kind}\0{address}".encode("utf-8", "surrogateescape")
    return hashlib.sha256(text).hexdigest()[:32]


def _take(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""Finding the git repositories below a folder, without ever following a link or entering a store.

Listed: work trees with a ``.git`` folder, and bare repositories; nested ones too. Never listed, but counted: symbolic
links, linked work trees and submodules (``.git`` is a file), submodule stores (``.git/modules``), excluded folders
(``data_dir``, the checkout cache). A folder that cannot be read makes the walk incomplete.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from ..schema.errors import SourceFault
from ..schema.text import display
from .base import EntryFault

_LINK_FILE_LIMIT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRepository:
    """One repository on this machine."""

    path: str  # real path of the work tree's root or of the bare repository
    git_dir: str  # its repository folder


@dataclass(slots=True, kw_only=True)
class FolderWalk:
    """A walk below one folder and what it learned; ``complete`` is meaningful after ``find`` has ended."""

    root: str  # a real path
    excluded: Collection[str] = ()  # real paths
    complete: bool = True
    not_listed: Counter[str] = field(default_factory=Counter[str])
    faults: list[EntryFault] = field(default_factory=list[EntryFault])

    def find(self) -> Iterator[FoundRepository]:
        """Yield every repository, parents before children, siblings by name.

        Raises ``SourceFault`` (``unreadable``) when the root itself is missing or no folder.
        """
        try:
            if not os.path.isdir(self.root):
                what = "is not a folder" if os.path.lexists(self.root) else "does not exist (or is not mounted)"
                raise SourceFault("unreadable", f"{display(self.root)} {what}; check the path of this git source")
            os.scandir(self.root).close()
        except OSError as error:
            message = f"{display(self.root)} cannot be listed: {error.strerror}; give this user the right to read it"
            raise SourceFault("unreadable", message) from error
        pending = [self.root]
        while pending:
            folder = pending.pop()
            found, children = self._visit(folder)
            if found is not None:
                yield found
            pending.extend(sorted(children, reverse=True))

    def hand_over(self, not_listed: "Counter[str]", faults: list[EntryFault]) -> None:
        """Move what was counted so far to the caller's page."""
        not_listed.update(self.not_listed)
        faults.extend(self.faults)
        self.not_listed.clear()
        self.faults.clear()

    def _visit(self, folder: str) -> tuple[FoundRepository | None, list[str]]:
        try:
            with os.scandir(folder) as listing:
                entries = {entry.name: entry for entry in listing}
        except OSError as error:
            if isinstance(error, FileNotFoundError) and folder != self.root:
                return None, []  # removed while we walked: nothing is there any more
            self._unreadable(folder, error)
            return None, []
        if _looks_bare(entries):
            return FoundRepository(path=folder, git_dir=folder), []
        found = self._work_tree(folder, entries.get(".git"))
        children: list[str] = []
        for name, entry in entries.items():
            if name == ".git":
                continue
            if entry.is_symlink():
                if _is_folder(entry):
                    self.not_listed["symbolic_link"] += 1
            elif entry.is_dir(follow_symlinks=False):
                path = os.path.join(folder, name)
                if path in self.excluded:
                    self.not_listed["excluded_folder"] += 1
                else:
                    children.append(path)
        return found, children

    def _work_tree(self, folder: str, dot_git: "os.DirEntry[str] | None") -> FoundRepository | None:
        if dot_git is None:
            return None
        git_dir = os.path.join(folder, ".git")
        if dot_git.is_symlink():
            self.not_listed["symbolic_link"] += 1
            return None
        if not dot_git.is_dir(follow_symlinks=False):
            self.not_listed[_kind_of_link(git_dir)] += 1
            return None
        try:
            with os.scandir(git_dir) as listing:
                names = {entry.name for entry in listing}
        except OSError as error:
            # It is there, it is only closed to us: listed, so that its absence is not taken for a removal.
            self.faults.append(EntryFault(entry=folder, code="unreadable", message=_closed(git_dir, error)))
            return FoundRepository(path=folder, git_dir=git_dir)
        if not names & {"HEAD", "objects", "config"}:
            self.not_listed["not_a_repository"] += 1
            return None
        if "modules" in names:
            self.not_listed["submodule_store"] += _count_stores(os.path.join(git_dir, "modules"))
        return FoundRepository(path=folder, git_dir=git_dir)

    def _unreadable(self, folder: str, error: OSError) -> None:
        self.complete = False
        self.not_listed["unreadable_folder"] += 1
        self.faults.append(EntryFault(entry=folder, code="unreadable", message=_closed(folder, error)))


def _looks_bare(entries: "dict[str, os.DirEntry[str]]") -> bool:
    """Git's own test (``is_git_directory``) without opening anything: HEAD, objects and refs."""
    if not ("HEAD" in entries and "objects" in entries and "refs" in entries):
        return False
    return entries["objects"].is_dir() and entries["refs"].is_dir() and not entries["HEAD"].is_dir()


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _kind_of_link(path: str) -> str:
    """Why a ``.git`` file is not listed; its target is read as text and never opened."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "git_file"
    try:
        content = os.read(handle, _LINK_FILE_LIMIT)
    except OSError:
        return "git_file"
    finally:
        os.close(handle)
    if b"/worktrees/" in content:
        return "linked_work_tree"
    return "submodule" if b"/modules/" in content else "git_file"


def _count_stores(modules: str) -> int:
    """How many submodule repositories lie below ``.git/modules`` (their names may have slashes)."""
    count, pending = 0, [modules]
    while pending:
        try:
            with os.scandir(pending.pop()) as listing:
                entries = {entry.name: entry for entry in listing}
        except OSError:
            continue
        if _looks_bare(entries):
            count += 1
            entries = {name: entry for name, entry in entries.items() if name == "modules"}
        pending.extend(e.path for e in entries.values() if e.is_dir(follow_symlinks=False))
    return count


def _closed(path: str, error: OSError) -> str:
    return f"{display(path)} cannot be read ({error.strerror}); give this user the right to read it, or exclude it"

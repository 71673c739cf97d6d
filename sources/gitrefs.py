"""The advertised refs of a repository, their digest, and a reader that needs no program for plain repositories.

The digest is the change signal of git (queue.md, "Marks and snapshots"): equal digests mean that every branch, every
tag and the default branch are where they were. ``read_plain`` gives exactly what ``git upload-pack`` would advertise,
or ``None`` where that cannot be proven, and then git is asked. It reads contents and never trusts a modification time.
"""

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCOPE = ("refs/heads/", "refs/tags/")
HEAD = "HEAD"

_OBJECT_ID = re.compile(rb"[0-9a-f]{40}\Z")
_LOOSE = re.compile(rb"([0-9a-f]{40})\s*\Z")
_SYMBOLIC_HEAD = re.compile(rb"ref:[ \t]*(refs/heads/[^\s\x00]+)[ \t\r\n]*\Z")
# Names as git-check-ref-format allows them, stricter where in doubt: a name outside of this sends the question to git.
_PLAIN_NAME = re.compile(rb"refs/(?:heads|tags)(?:/[A-Za-z0-9_+=%#!,@][A-Za-z0-9_+=%#!,@.-]*)+\Z")
# Settings that change what is advertised or how refs are stored; a mere mention sends the question to git.
_NOT_PLAIN = (b"hiderefs", b"include", b"extensions", b"namespace", b"promisor")
_FILE_LIMIT = 64 * 1024 * 1024
_CONFIG_LIMIT = 1024 * 1024
_LOOSE_LIMIT = 4096
_ZERO = b"0" * 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """What a repository says of itself: full ref names to hex object ids (tags unpeeled), in scope only."""

    refs: Mapping[str, str]
    default_branch: str | None  # full name of the branch HEAD points to, when that branch exists
    detached: str | None  # HEAD's object id when HEAD is on no branch

    @property
    def digest(self) -> bytes:
        """SHA-256 over the sorted refs and HEAD (32 bytes); the order in which they were read does not matter."""
        return digest(self.refs, default_branch=self.default_branch, detached=self.detached)


def digest(refs: Mapping[str, str], *, default_branch: str | None, detached: str | None) -> bytes:
    """The change signal: SHA-256 (32 bytes) over every ref in scope, and HEAD.

    HEAD belongs to it because a scan of the default branch's files, and whether a finding stands in it, change with it.
    """
    state = hashlib.sha256()
    if default_branch is not None:
        state.update(b"ref: " + os.fsencode(default_branch) + b" HEAD\n")
    elif detached is not None:
        state.update(detached.encode("ascii") + b" HEAD\n")
    for name in sorted(refs):
        state.update(refs[name].encode("ascii") + b" " + os.fsencode(name) + b"\n")
    return state.digest()


def in_scope(name: str) -> bool:
    """Whether a ref belongs to the scope of a scan: every branch and every tag."""
    return name.startswith(SCOPE)


def parse_ls_remote(output: bytes) -> Advertised:
    """Read ``git ls-remote --symref``. Raises ``ValueError`` for lines that git would not write."""
    refs: dict[str, str] = {}
    default_branch: str | None = None
    head: str | None = None
    for line in output.split(b"\n"):
        if not line:
            continue
        left, tab, raw_name = line.partition(b"\t")
        if not tab:
            message = "a line without a tab"
            raise ValueError(message)
        name = os.fsdecode(raw_name)
        if left.startswith(b"ref: "):
            if name == HEAD:
                default_branch = os.fsdecode(left.removeprefix(b"ref: "))
            continue
        if re.fullmatch(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?", left) is None:
            message = "an object id is malformed"
            raise ValueError(message)
        if name == HEAD:
            head = left.decode("ascii")
        elif in_scope(name) and not name.endswith("^{}"):
            refs[name] = left.decode("ascii")
    return settle_head(refs, default_branch=default_branch, head=head)


def settle_head(refs: Mapping[str, str], *, default_branch: str | None, head: str | None) -> Advertised:
    """Decide what HEAD means: a branch in scope, an object of its own, or nothing.

    Servers without the symref capability (very old ones) name only HEAD's object id: no branch is guessed from it, the
    commit itself is then the default tree.
    """
    if default_branch is not None and default_branch in refs:
        return Advertised(refs=refs, default_branch=default_branch, detached=None)
    if head is None:
        return Advertised(refs=refs, default_branch=None, detached=None)
    return Advertised(refs=refs, default_branch=None, detached=head)


def read_plain(git_dir: Path) -> Advertised | None:
    """What ``git upload-pack`` would advertise of the repository ``git_dir``, or None when git must be asked.

    Loose refs are read before packed ones: git writes ``packed-refs`` before it drops loose refs, so no ref is
    missed while a repository is being packed. Never raises; never follows a symbolic link.
    """
    try:
        return _read_plain(os.fspath(git_dir))
    except (OSError, ValueError):
        return None


def _read_plain(git_dir: str) -> Advertised | None:
    head = _read(f"{git_dir}/HEAD", _CONFIG_LIMIT)
    if head is None or not _is_plain_repository(git_dir):
        return None
    loose: dict[bytes, bytes] = {}
    root = os.fsencode(git_dir)
    if not (_read_loose(root, b"refs/heads", loose) and _read_loose(root, b"refs/tags", loose)):
        return None
    packed = _read(f"{git_dir}/packed-refs", _FILE_LIMIT)
    refs: dict[bytes, bytes] = {}
    if (packed is None and _exists(f"{git_dir}/packed-refs")) or not _parse_packed(packed or b"", refs):
        return None
    refs.update(loose)
    return _settle_plain(head, refs)


def _is_plain_repository(git_dir: str) -> bool:
    """Whether refs are stored in the classic way and nothing hides any: no setting, no link, no other folder."""
    config = _read(f"{git_dir}/config", _CONFIG_LIMIT)
    if config is None or any(word in config.lower() for word in _NOT_PLAIN):
        return False
    # A linked work tree has its common folder elsewhere; reftable keeps only a stub of files.
    if _exists(f"{git_dir}/commondir") or _exists(f"{git_dir}/reftable"):
        return False
    return all(stat.S_ISDIR(os.lstat(f"{git_dir}/{name}").st_mode) for name in ("objects", "refs"))


def _settle_plain(head: bytes, refs: dict[bytes, bytes]) -> Advertised | None:
    if any(value == _ZERO for value in refs.values()):
        return None
    named = {name.decode("ascii"): value.decode("ascii") for name, value in refs.items()}
    symbolic = _SYMBOLIC_HEAD.match(head)
    if symbolic is not None:
        branch = symbolic[1]
        if _PLAIN_NAME.match(branch) is None or not _is_plain(branch):
            return None
        # HEAD on a branch that does not exist yet is not advertised.
        return settle_head(named, default_branch=branch.decode("ascii"), head=None)
    detached = _LOOSE.match(head)
    if detached is None:
        return None
    return settle_head(named, default_branch=None, head=detached[1].decode("ascii"))


def _read_loose(root: bytes, folder: bytes, into: dict[bytes, bytes]) -> bool:
    """Collect loose refs below ``folder``; False when something is not plain."""
    pending = [folder]
    while pending:
        current = pending.pop()
        try:
            entries = list(os.scandir(root + b"/" + current))
        except FileNotFoundError:
            continue  # no folder, no refs (also: removed by git this moment; its refs are gone or packed)
        for entry in entries:
            name = current + b"/" + entry.name
            if entry.is_dir(follow_symlinks=False):
                pending.append(name)
            elif entry.is_symlink() or not _take_loose(root, name, entry.name, into):
                return False
    return True


def _take_loose(root: bytes, name: bytes, last: bytes, into: dict[bytes, bytes]) -> bool:
    """Read one loose ref; False when it is not plain (symbolic, broken, oddly named, of another hash)."""
    if last.endswith(b".lock") or last.startswith(b"."):
        return True  # git does not see them as refs either
    if _PLAIN_NAME.match(name) is None or not _is_plain(name):
        return False
    path = os.fsdecode(root + b"/" + name)
    content = _read(path, _LOOSE_LIMIT)
    if content is None:
        # Gone between listing and reading: packed or deleted by git; the packed file is read afterwards.
        return not _exists(path)
    match = _LOOSE.match(content)
    if match is None:
        return False
    into[name] = match[1]
    return True


def _parse_packed(content: bytes, into: dict[bytes, bytes]) -> bool:
    if content and not content.endswith(b"\n"):
        return False
    for line in content.split(b"\n"):
        if not line or line[:1] in b"#^":
            continue
        value, space, name = line.partition(b" ")
        if not space or _OBJECT_ID.match(value) is None:
            return False
        if not name.startswith((b"refs/heads/", b"refs/tags/")):
            continue
        if _PLAIN_NAME.match(name) is None or not _is_plain(name):
            return False
        into[name] = value
    return True


def _is_plain(name: bytes) -> bool:
    """The rules of git-check-ref-format that the pattern above does not hold."""
    return not (b".." in name or b"@{" in name or b"./" in name or name.endswith((b".", b".lock")) or b".lock/" in name)


def _exists(path: str) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def _read(path: str, limit: int) -> bytes | None:
    """A regular file's content; None when it is missing, no regular file, a link, or larger than ``limit`` bytes."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        content = os.read(handle, status.st_size + 1)
        if len(content) == status.st_size:
            return content
        chunks = [content]  # it grew, or came in pieces
        while chunk := os.read(handle, 1 << 20):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(handle)

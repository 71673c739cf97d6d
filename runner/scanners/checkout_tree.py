"""Writing a commit's files into a folder, without git's checkout: no filter, hook, attribute or link has a say.

Every path comes from a repository that may be hostile. What is not a plain file at a plain path is left out, counted
by reason and named; symbolic links become text files that hold their target, as ``core.symlinks=false`` does.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...schema.errors import TargetFault
from ...schema.records import NotScanned
from ...schema.text import display
from ...sources.gitcommand import GitCommand
from ...sources.gitfaults import explain

_LISTING_LIMIT = 64 << 20
_BATCH_BYTES = 32 << 20
_BATCH_FILES = 20_000
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v"
_LFS_POINTER_LIMIT = 1024
_EXAMPLES = 5
_NAME_LIMIT = 255
_PATH_LIMIT = 3000
_LINK, _SUBMODULE = b"120000", b"160000"
_FILES = frozenset({b"100644", b"100755", b"100664"})
# Code points that HFS+ ignores in names: ".g\u200cit" is ".git" there.
_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """Bounds of a written tree; what is beyond them is counted as not scanned."""

    max_files: int = 200_000
    max_bytes: int = 4 << 30
    max_file_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeWritten:
    """What was written, and what was not."""

    files: int
    bytes: int
    not_scanned: tuple[NotScanned, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    mode: bytes
    object_id: bytes
    size: int
    path: bytes


@dataclass(slots=True)
class _LeftOut:
    counts: dict[str, int] = field(default_factory=dict[str, int])
    examples: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add(self, reason: str, path: bytes) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        named = self.examples.setdefault(reason, [])
        if len(named) < _EXAMPLES:
            named.append(display(os.fsdecode(path[:_PATH_LIMIT]))[:_NAME_LIMIT])

    def records(self) -> tuple[NotScanned, ...]:
        return tuple(
            NotScanned(reason=reason, count=count, examples=tuple(self.examples[reason]))
            for reason, count in sorted(self.counts.items())
        )


def write_tree(git: GitCommand, repository: Path, head: str | None, dest: Path, limits: TreeLimits) -> TreeWritten:
    """Write the tree of commit ``head`` into ``dest``, which must not exist; ``head`` None writes an empty folder.

    Raises ``TargetFault`` (``broken``, ``time_limit``) when the copy's objects cannot be read.
    """
    dest.mkdir(mode=0o700)
    if head is None:
        return TreeWritten(files=0, bytes=0, not_scanned=())
    left_out = _LeftOut()
    listed = _choose(_list(git, repository, head, left_out), limits, left_out)
    files, written = 0, 0
    for batch in _batches(listed):
        contents = _read_batch(git, repository, batch)
        for entry in batch:
            content = next(contents)
            if content is None:
                left_out.add("missing_object", entry.path)
            elif _write_file(os.fsencode(dest), entry.path, content, left_out):
                files += 1
                written += len(content)
                if len(content) < _LFS_POINTER_LIMIT and content.startswith(_LFS_POINTER):
                    left_out.add("lfs_pointer", entry.path)
    return TreeWritten(files=files, bytes=written, not_scanned=left_out.records())


def refused_name(component: bytes) -> bool:
    """Whether one component of a path could mean something else than a file of that name, here or elsewhere."""
    if component in {b"", b".", b".."} or b"/" in component or b"\0" in component or b"\\" in component:
        return True
    text = component.decode("utf-8", "surrogateescape").translate(_IGNORED).casefold()
    text = text.split(":", 1)[0].rstrip(". ")
    return text in {".git", "git~1", ""}


def _list(git: GitCommand, repository: Path, head: str, left_out: _LeftOut) -> Iterator[_Listed]:
    result = git.run(
        ["ls-tree", "-r", "-z", "--full-tree", head],
        git_dir=repository,
        seconds=git.settings.transfer_seconds,
        output_limit_bytes=_LISTING_LIMIT,
    )
    if result.timed_out or (result.exit_code != 0 and not result.truncated and not result.stdout):
        fault = explain(result, str(repository), "listing the default branch")
        raise TargetFault("time_limit" if result.timed_out else "broken", str(fault)) from fault
    whole, _, _ = result.stdout.rpartition(b"\0")
    if result.truncated or result.exit_code != 0:
        # Too many entries, or nested so deep that git gave up: what was listed is scanned, the rest is said.
        left_out.add("tree_limit", b"")
    lines = [(meta.split(), path) for meta, _, path in (line.partition(b"\t") for line in whole.split(b"\0")) if path]
    filtered = _filtered(git, repository, head)
    for _, path in (line for line in lines if line[0][2] in filtered):
        left_out.add("blob_too_large", path)
    lines = [line for line in lines if line[0][2] not in filtered]
    sizes = _sizes(git, repository, {fields[2] for fields, _ in lines if fields[0] != _SUBMODULE})
    for fields, path in lines:
        yield _Listed(mode=fields[0], object_id=fields[2], size=sizes.get(fields[2], 0), path=path)


def _filtered(git: GitCommand, repository: Path, head: str) -> set[bytes]:
    """Blobs of the tree that the copy's size filter left out (git refuses to look at them one by one)."""
    if b"promisor" not in (repository / "config").read_bytes():
        return set()
    result = git.run(
        ["rev-list", "--objects", "--no-object-names", "--missing=print", f"{head}^{{tree}}"],
        git_dir=repository,
        seconds=git.settings.transfer_seconds,
        output_limit_bytes=_LISTING_LIMIT,
    )
    return {line[1:] for line in result.stdout.splitlines() if line.startswith(b"?")}


def _sizes(git: GitCommand, repository: Path, object_ids: set[bytes]) -> dict[bytes, int]:
    """Sizes of the objects that are there, in bytes."""
    result = git.run(
        ["cat-file", "--batch-check=%(objectname) %(objectsize)"],
        git_dir=repository,
        seconds=git.settings.transfer_seconds,
        output_limit_bytes=_LISTING_LIMIT,
        stdin=b"".join(object_id + b"\n" for object_id in object_ids),
    )
    found = (line.split(b" ") for line in result.stdout.splitlines())
    return {fields[0]: int(fields[1]) for fields in found if fields[-1].isdigit()}


def _choose(listed: Iterator[_Listed], limits: TreeLimits, left_out: _LeftOut) -> list[_Listed]:
    chosen: list[_Listed] = []
    total = 0
    for entry in listed:
        components = entry.path.split(b"/")
        if entry.mode == _SUBMODULE:
            left_out.add("submodule", entry.path)
        elif entry.mode != _LINK and entry.mode not in _FILES:
            left_out.add("odd_mode", entry.path)
        elif any(map(refused_name, components)):
            left_out.add("refused_path", entry.path)
        elif len(entry.path) > _PATH_LIMIT or any(len(name) > _NAME_LIMIT for name in components):
            left_out.add("path_too_long", entry.path)
        elif entry.size > limits.max_file_bytes:
            left_out.add("file_too_large", entry.path)
        elif len(chosen) >= limits.max_files or total + entry.size > limits.max_bytes:
            left_out.add("tree_limit", entry.path)
        else:
            chosen.append(entry)
            total += entry.size
    return chosen


def _batches(listed: list[_Listed]) -> Iterator[list[_Listed]]:
    batch: list[_Listed] = []
    size = 0
    for entry in listed:
        if batch and (size + entry.size > _BATCH_BYTES or len(batch) >= _BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += entry.size
    if batch:
        yield batch


def _read_batch(git: GitCommand, repository: Path, batch: list[_Listed]) -> Iterator[bytes | None]:
    """The contents of a batch, in its order; None for an object that is missing."""
    result = git.run(
        ["cat-file", "--batch"],
        git_dir=repository,
        seconds=git.settings.transfer_seconds,
        output_limit_bytes=sum(entry.size for entry in batch) + 200 * len(batch),
        stdin=b"".join(entry.object_id + b"\n" for entry in batch),
    )
    if result.exit_code != 0 or result.timed_out or result.truncated:
        fault = explain(result, str(repository), "reading files of the default branch")
        raise TargetFault("broken", str(fault)) from fault
    position = 0
    for _ in batch:
        end = result.stdout.index(b"\n", position)
        header = result.stdout[position:end].split(b" ")
        position = end + 1
        if not header[-1].isdigit():  # "ID missing"
            yield None
            continue
        size = int(header[-1])
        yield result.stdout[position : position + size] if header[1] == b"blob" else None
        position += size + 1


def _write_file(dest: bytes, path: bytes, content: bytes, left_out: _LeftOut) -> bool:
    """Write one new file. Nothing below ``dest`` is ever a link, so no path leaves it."""
    target = os.path.join(dest, path)
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        left_out.add("name_collision", path)
        return False
    except OSError:
        left_out.add("path_too_long", path)
        return False
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return True

"""Where exactly a finding stands: its blob, whether that blob is in the head, and the mark beside it. Git is asked."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...schema.records import NotScanned
from ...sources.gitcommand import GitCommand
from .base import RawFinding
from .ignore import MarkedLines

_LISTING_LIMIT = 64 << 20  # about a million entries; a larger tree is not listed, and its places not looked up
_NEW_PATHS_BYTES = 4 << 20
_SECONDS = 120.0
_ODD_PATHS = 50  # paths with a line break in them are asked for one by one, so many at most
_MARKED_BLOB_BYTES = 8 << 20
_MARKS_BYTES = 64 << 20  # of blobs read in all to look for marks
_LFS_BYTES = range(100, 1024)
_LFS_CANDIDATES = 5_000
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v"
_EXAMPLES = 5
_BLOB_SIZE = re.compile(rb"^blob (\d+)$", re.MULTILINE)
_BATCH_LINE = re.compile(rb"([0-9a-f]{40}(?:[0-9a-f]{24})?) blob (\d+)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTree:
    """The default branch's tree: which blobs it holds, and what of it is never read."""

    blobs: frozenset[str] = frozenset()
    not_scanned: tuple[NotScanned, ...] = ()


def survey_head(git: GitCommand, repository: Path, head: str | None) -> HeadTree:
    """List the head's tree: blobs (hex), submodules, and pointers to files that lie in LFS."""
    if head is None:
        return HeadTree()
    listed = _git(git, repository, ["ls-tree", "-r", "-z", "--full-tree", head])
    blobs: set[str] = set()
    submodules: list[str] = []
    attributes = False
    for entry in listed.split(b"\0"):
        meta, tab, path = entry.partition(b"\t")
        fields = meta.split(b" ")
        if not tab or len(fields) != 3:  # noqa: PLR2004 - mode, type, id
            continue
        if fields[1] == b"commit":
            submodules.append(path.decode("utf-8", "replace"))
        else:
            blobs.add(fields[2].decode("ascii"))
            attributes = attributes or path.rpartition(b"/")[2] == b".gitattributes"
    missing: list[NotScanned] = []
    if submodules:
        missing.append(NotScanned(reason="submodule", count=len(submodules), examples=tuple(submodules[:_EXAMPLES])))
    if attributes:  # without one, no file of the tree is kept in LFS
        pointers = _lfs_pointers(git, repository, blobs)
        if pointers:
            missing.append(NotScanned(reason="lfs_pointer", count=pointers))
    return HeadTree(blobs=frozenset(blobs), not_scanned=tuple(missing))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """Blobs of a whole copy by what a scanner does with their size."""

    readable: int
    too_large: int


def size_blobs(git: GitCommand, repository: Path, sizes: range) -> Sized | None:
    """Count all blobs of the copy against the sizes a scanner reads; None when there are too many to list."""
    listed = _git(
        git,
        repository,
        ["cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectsize)"],
    )
    if not listed:
        return None
    found = [int(match) for match in _BLOB_SIZE.findall(listed)]
    return Sized(
        readable=sum(1 for size in found if size in sizes), too_large=sum(1 for size in found if size >= sizes.stop)
    )


def new_paths(git: GitCommand, repository: Path, tips: Iterable[str], base: str) -> tuple[bytes, ...]:
    """Paths of the blobs reachable from ``tips`` and not from ``base``; none when they cannot be told or are many."""
    lines = [*tips, f"^{base}"]
    listed = _git(
        git,
        repository,
        ["rev-list", "--objects", "--filter=object:type=blob", "--stdin"],
        stdin="".join(f"{line}\n" for line in lines).encode("ascii"),
        limit=_NEW_PATHS_BYTES,
    )
    return tuple(path for line in listed.splitlines() if (path := line.partition(b" ")[2]))


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob at a place: hex id, and its size in bytes where git was asked for it."""

    object_id: str
    size: int | None = None


def find_blobs(git: GitCommand, repository: Path, raws: Iterable[RawFinding]) -> dict[tuple[str, bytes], Blob]:
    """The blob at each (commit, path) of ``raws``; pairs that git does not know are left out."""
    wanted = sorted({(raw.commit, raw.path) for raw in raws if raw.commit is not None and raw.blob is None})
    plain = [pair for pair in wanted if b"\n" not in pair[1]]
    found: dict[tuple[str, bytes], Blob] = {}
    if plain:
        output = _git(
            git,
            repository,
            ["cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)"],
            stdin=b"".join(commit.encode() + b":" + path + b"\n" for commit, path in plain),
        )
        for pair, line in zip(plain, output.split(b"\n"), strict=False):
            match = _BATCH_LINE.match(line)
            if match:
                found[pair] = Blob(match[1].decode("ascii"), int(match[2]))
    for commit, path in [pair for pair in wanted if b"\n" in pair[1]][:_ODD_PATHS]:
        output = _git(git, repository, ["ls-tree", "-z", "--full-tree", commit, "--", path.decode("utf-8", "replace")])
        fields = output.partition(b"\t")[0].split(b" ")
        if len(fields) == 3 and fields[1] == b"blob":  # noqa: PLR2004 - mode, type, id
            found[commit, path] = Blob(fields[2].decode("ascii"))
    return found


def blob_of(raw: RawFinding, blobs: Mapping[tuple[str, bytes], Blob]) -> Blob | None:
    """The blob that a finding stands in, as the scanner said or as git knows."""
    if raw.blob is not None:
        return Blob(raw.blob)
    return blobs.get((raw.commit, raw.path)) if raw.commit is not None else None


def find_marks(
    git: GitCommand, repository: Path, raws: Sequence[RawFinding], blobs: Mapping[tuple[str, bytes], Blob]
) -> dict[int, str]:
    """Inline ignore marks: index in ``raws`` to the reason. Large blobs are not looked into."""
    by_blob: dict[str, list[int]] = {}
    sizes: dict[str, int | None] = {}
    for index, raw in enumerate(raws):
        blob = blob_of(raw, blobs)
        if blob is not None and raw.line:
            by_blob.setdefault(blob.object_id, []).append(index)
            sizes[blob.object_id] = blob.size
    marks: dict[int, str] = {}
    for object_id, content in _contents(git, repository, sizes):
        lines = MarkedLines(content)
        for index in by_blob[object_id]:
            reason = lines.mark(raws[index].line, lines=raws[index].secret.count(b"\n") + 1)
            if reason:
                marks[index] = reason
    return marks


def _lfs_pointers(git: GitCommand, repository: Path, blobs: Iterable[str]) -> int:
    sizes = _sizes(git, repository, blobs)
    small = {name: size for name, size in sizes.items() if size in _LFS_BYTES}
    some: dict[str, int | None] = dict(sorted(small.items())[:_LFS_CANDIDATES])
    return sum(1 for _, content in _contents(git, repository, some) if content.startswith(_LFS_POINTER))


def _sizes(git: GitCommand, repository: Path, blobs: Iterable[str]) -> dict[str, int]:
    sized = _git(
        git,
        repository,
        ["cat-file", "--batch-check=%(objectname) %(objectsize)"],
        stdin="".join(f"{blob}\n" for blob in sorted(blobs)).encode("ascii"),
    )
    pairs = (line.partition(b" ") for line in sized.splitlines())
    return {name.decode("ascii"): int(size) for name, _, size in pairs if size.isdigit()}


def _contents(git: GitCommand, repository: Path, sizes: Mapping[str, int | None]) -> Iterator[tuple[str, bytes]]:
    """The contents of blobs that are not too large, until ``_MARKS_BYTES`` are read."""
    unknown = [name for name, size in sizes.items() if size is None]
    known = {**sizes, **(_sizes(git, repository, unknown) if unknown else {})}
    wanted: list[tuple[str, int]] = []
    total = 0
    for name, size in sorted(known.items()):
        if size is not None and size <= _MARKED_BLOB_BYTES and total + size <= _MARKS_BYTES:
            wanted.append((name, size))
            total += size
    if not wanted:
        return
    output = _git(
        git,
        repository,
        ["cat-file", "--batch"],
        stdin="".join(f"{name}\n" for name, _ in wanted).encode("ascii"),
        limit=total + 200 * len(wanted) + 200,
    )
    position = 0
    for name, size in wanted:
        end = output.find(b"\n", position)
        if end < 0 or output[position:end] != b"%s blob %d" % (name.encode(), size):
            return
        yield name, output[end + 1 : end + 1 + size]
        position = end + 1 + size + 1


def _git(
    git: GitCommand,
    repository: Path,
    arguments: Sequence[str],
    *,
    stdin: bytes | None = None,
    limit: int = _LISTING_LIMIT,
) -> bytes:
    """Output of a git command over our copy; empty when it failed: places are then less exact, not lost."""
    result = git.run(arguments, git_dir=repository, seconds=_SECONDS, output_limit_bytes=limit, stdin=stdin)
    return result.stdout if result.exit_code == 0 and not result.truncated else b""

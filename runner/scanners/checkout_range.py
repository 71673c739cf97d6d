"""What there is to read in a held copy: all of it, or what came since the covered tips; and the base of a range."""

import hashlib
import re
import secrets
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from ...schema.errors import TargetFault
from ...sources.base import CommandResult
from ...sources.gitcommand import GitCommand
from ...sources.gitfaults import explain

_LISTING_LIMIT = 512 << 20
_SHA1_DIGITS = 40
_BLOB = re.compile(rb"^blob (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobCount:
    """Blobs a scan has to read; not ``exact`` when there were too many to list: there are at least so many."""

    blobs: int
    bytes: int
    exact: bool = True


def peel(git: GitCommand, repository: Path, object_ids: Collection[str]) -> dict[str, str]:
    """Follow tags to what they name: peeled object id to ``commit``, ``tree``, ``blob``, or ``missing``."""
    if not object_ids:
        return {}
    result = _run(
        git,
        repository,
        ["cat-file", "--batch-check=%(objectname) %(objecttype)"],
        (f"{object_id}^{{}}" for object_id in sorted(object_ids)),
    )
    peeled: dict[str, str] = {}
    for line in result.stdout.decode("ascii", "replace").splitlines():
        name, _, kind = line.partition(" ")
        peeled[name.removesuffix("^{}")] = kind if kind in {"commit", "tree", "blob"} else "missing"
    return peeled


def count_all(git: GitCommand, repository: Path) -> BlobCount:
    """Every blob of the copy."""
    result = _run(
        git,
        repository,
        ["cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objecttype) %(objectsize)"],
    )
    return _count(result.stdout, exact=not result.truncated)


def count_since(git: GitCommand, repository: Path, *, tips: Iterable[str], covered: frozenset[str]) -> BlobCount | None:
    """Blobs reachable from ``tips`` and not from ``covered``; None when no range of commits can say it."""
    fresh = [tip for tip in tips if tip not in covered]
    known = peel(git, repository, covered)
    if "missing" in known.values():
        return None
    if not fresh:
        return BlobCount(blobs=0, bytes=0)
    if set(peel(git, repository, fresh).values()) != {"commit"}:
        return None
    listed = _run(
        git,
        repository,
        ["rev-list", "--objects", "--no-object-names", "--filter=object:type=blob", "--missing=allow-any", "--stdin"],
        (*fresh, *(f"^{tip}" for tip in known)),
    )
    sized = _run(
        git,
        repository,
        ["cat-file", "--batch-check=%(objecttype) %(objectsize)"],
        stdin=listed.stdout[: listed.stdout.rfind(b"\n") + 1],
    )
    return _count(sized.stdout, exact=not (listed.truncated or sized.truncated))


def write_base(git: GitCommand, repository: Path, covered: frozenset[str]) -> str | None:
    """Write the commit whose parents are all covered commits, on the empty tree, and a ref that keeps it."""
    known = peel(git, repository, covered)
    parents = sorted(oid for oid, kind in known.items() if kind == "commit")
    if not parents or "missing" in known.values():
        return None
    objects = repository / "objects"
    tree = _write_object(objects, b"tree", b"", digits=len(parents[0]))
    who = "resweep <resweep@localhost> 0 +0000"
    text = f"tree {tree}\n" + "".join(f"parent {oid}\n" for oid in parents)
    body = f"{text}author {who}\ncommitter {who}\n\nbase of an incremental scan\n".encode("ascii")
    base = _write_object(objects, b"commit", body, digits=len(parents[0]))
    folder = repository / "refs" / "resweep" / "base"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / base).write_text(f"{base}\n", encoding="ascii")
    return base


def _write_object(objects: Path, kind: bytes, body: bytes, *, digits: int) -> str:
    """Write a loose object as git does: hash over header and body, zlib, renamed into place."""
    content = b"%s %d\0%s" % (kind, len(body), body)
    make = hashlib.sha1 if digits == _SHA1_DIGITS else hashlib.sha256
    name = make(content, usedforsecurity=False).hexdigest()
    path = objects / name[:2] / name[2:]
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        fresh = path.parent / f"tmp_obj_{secrets.token_hex(6)}"
        fresh.write_bytes(zlib.compress(content))
        fresh.chmod(0o444)
        fresh.replace(path)
    return name


def _count(output: bytes, *, exact: bool) -> BlobCount:
    blobs, size = 0, 0
    for match in _BLOB.finditer(output):
        blobs += 1
        size += int(match[1])
    return BlobCount(blobs=blobs, bytes=size, exact=exact)


def _run(
    git: GitCommand,
    repository: Path,
    arguments: list[str],
    lines: Iterable[str] = (),
    *,
    stdin: bytes | None = None,
) -> CommandResult:
    if stdin is None:
        stdin = "".join(f"{line}\n" for line in lines).encode("ascii")
    result = git.run(
        arguments,
        git_dir=repository,
        seconds=git.settings.transfer_seconds,
        output_limit_bytes=_LISTING_LIMIT,
        stdin=stdin,
    )
    if result.timed_out or (result.exit_code != 0 and not result.truncated):
        fault = explain(result, str(repository), f"running git {arguments[0]}")
        raise TargetFault("broken", str(fault)) from fault
    return result

"""Builders of real git repositories for tests: ordinary ones by git itself, hostile objects written byte by byte."""

import hashlib
import os
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "A. Author",
    "GIT_AUTHOR_EMAIL": "author@example.org",
    "GIT_COMMITTER_NAME": "A. Author",
    "GIT_COMMITTER_EMAIL": "author@example.org",
}
_EPOCH = 1_600_000_000


def git(where: Path, *arguments: str | bytes, stdin: bytes | None = None, environment: Mapping[str, str] = {}) -> str:
    """Run git in a folder with a clean environment; returns its output stripped. Raises when it fails."""
    result = subprocess.run(
        ["git", *arguments],
        cwd=where,
        env={**_ENVIRONMENT, **environment},
        input=stdin if stdin is not None else b"",
        capture_output=True,
        check=False,
    )
    if result.returncode != 0:
        shown = [argument if isinstance(argument, str) else os.fsdecode(argument) for argument in arguments]
        message = f"git {' '.join(shown)} in {where} ended with {result.returncode}: {result.stderr!r}"
        raise AssertionError(message)
    return result.stdout.decode("utf-8", "surrogateescape").strip()


@dataclass(slots=True)
class Repo:
    """A repository made for a test, with one clock that ticks a second a commit."""

    path: Path
    bare: bool = False
    _ticks: int = 0

    @classmethod
    def work_tree(cls, path: Path, *, files: Mapping[str, str | bytes] | None = None, branch: str = "main") -> "Repo":
        """An ordinary repository at ``path``; one commit when ``files`` is given (an empty mapping: an empty one)."""
        path.mkdir(parents=True, exist_ok=True)
        git(path, "init", "-q", f"--initial-branch={branch}", "--template=")
        repo = cls(path=path)
        if files is not None:
            repo.commit(files)
        return repo

    @classmethod
    def bare_at(cls, path: Path, *, branch: str = "main") -> "Repo":
        """An empty bare repository at ``path``."""
        path.mkdir(parents=True, exist_ok=True)
        git(path, "init", "-q", "--bare", f"--initial-branch={branch}", "--template=")
        return cls(path=path, bare=True)

    @property
    def git_dir(self) -> Path:
        """The repository folder."""
        return self.path if self.bare else self.path / ".git"

    def run(self, *arguments: str | bytes, stdin: bytes | None = None) -> str:
        """Run git in it."""
        self._ticks += 1
        when = f"{_EPOCH + self._ticks} +0000"
        return git(
            self.path,
            *arguments,
            stdin=stdin,
            environment={"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when},
        )

    def commit(self, files: Mapping[str, str | bytes | None], message: str = "change") -> str:
        """Write files into the work tree (None removes one), commit everything; returns the commit's id."""
        for name, content in files.items():
            target = self.path / name
            if content is None:
                target.unlink()
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.run("add", "-A")
        self.run("commit", "-q", "--allow-empty", "-m", message)
        return self.run("rev-parse", "HEAD")

    def head(self) -> str:
        """The commit that HEAD names."""
        return self.run("rev-parse", "HEAD")

    # -- objects byte by byte: what no well-behaved git would write

    def write_object(self, kind: str, body: bytes) -> str:
        """Write a loose object without any check; returns its id."""
        content = f"{kind} {len(body)}\0".encode() + body
        name = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        path = self.git_dir / "objects" / name[:2] / name[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(zlib.compress(content))
        return name

    def write_tree(self, entries: Sequence[tuple[str, bytes, str]]) -> str:
        """Write a tree of (mode, name, id) in the order given, names unchecked."""
        body = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in entries)
        return self.write_object("tree", body)

    def write_commit(self, tree: str, *parents: str) -> str:
        """Write a commit object."""
        self._ticks += 1
        who = f"A. Author <author@example.org> {_EPOCH + self._ticks} +0000"
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}"]
        return self.write_object("commit", ("\n".join(lines) + "\n\nhostile\n").encode())

    def point(self, ref: str, oid: str) -> None:
        """Set a ref by writing its file, unchecked."""
        path = self.git_dir / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{oid}\n")


def fresh_clone_refs(source: Path, scratch: Path) -> dict[str, str]:
    """Branches and tags of a plain ``git clone --bare --no-local``, to compare with."""
    git(scratch.parent, "clone", "-q", "--bare", "--no-local", "--template=", "--", str(source), str(scratch))
    lines = git(scratch, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags").splitlines()
    return {name: oid for oid, _, name in (line.partition(" ") for line in lines)}


def all_objects(repository: Path) -> set[str]:
    """Every object id that a repository stores, reachable or not."""
    output = git(repository, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return set(output.split())

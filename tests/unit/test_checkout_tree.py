"""The default branch's files are written by us: nothing a repository holds decides where, or runs."""

import os
from pathlib import Path

import pytest

from resweep.runner.scanners.checkout import CheckoutCache, Repository
from resweep.runner.scanners.checkout_tree import TreeLimits, TreeWritten, refused_name
from resweep.schema.clock import SystemClock
from resweep.sources.gitcommand import GitCommand
from tests.support.commands import PlainRunner
from tests.support.repositories import Repo

FILE = "100644"


@pytest.fixture
def cache(tmp_path: Path) -> CheckoutCache:
    command = GitCommand.prepare(tmp_path / "git-home", PlainRunner())
    return CheckoutCache(tmp_path / "checkouts", git=command, clock=SystemClock(), limit_bytes=1 << 30)


def _write(cache: CheckoutCache, repo: Repo, dest: Path, limits: TreeLimits | None = None) -> TreeWritten:
    with cache.hold(str(repo.path)) as held:
        return cache.write_tree(held, dest, limits)


def _reasons(written: TreeWritten) -> dict[str, int]:
    return {entry.reason: entry.count for entry in written.not_scanned}


def _tree(dest: Path) -> dict[str, bytes]:
    return {str(path.relative_to(dest)): path.read_bytes() for path in dest.rglob("*") if path.is_file()}


def _bare(tmp_path: Path) -> tuple[Repo, str]:
    repo = Repo.bare_at(tmp_path / "hostile.git")
    return repo, repo.write_object("blob", b"content")


def _publish(repo: Repo, tree: str) -> None:
    repo.point("refs/heads/main", repo.write_commit(tree))


def test_files_are_written_as_they_are_stored(cache: CheckoutCache, tmp_path: Path) -> None:
    files = {
        "a.txt": b"plain\n",
        "dir/b.bin": bytes(range(256)) * 40,
        "empty": b"",
        "dir/deep/er/c": b"x" * 100_000,
        "sp ace \u00fc": b"name",
        ".gitattributes": b"* text eol=crlf filter=evil ident export-ignore\n",
        "ident.c": b"$Id$\n",
    }
    repo = Repo.work_tree(tmp_path / "src", files=files)
    dest = tmp_path / "tree"
    written = _write(cache, repo, dest)
    assert _tree(dest) == files
    assert (written.files, written.bytes, written.not_scanned) == (len(files), sum(map(len, files.values())), ())


def test_links_become_text_and_never_lead_out(cache: CheckoutCache, tmp_path: Path) -> None:
    repo = Repo.work_tree(tmp_path / "src", files={"real": "1"})
    (repo.path / "out").symlink_to("/etc/passwd")
    (repo.path / "up").symlink_to("../../..")
    repo.commit({})
    dest = tmp_path / "tree"
    _write(cache, repo, dest)
    assert not [path for path in dest.rglob("*") if path.is_symlink()]
    assert (dest / "out").read_text() == "/etc/passwd"
    assert (dest / "up").read_text() == "../../.."


def test_a_link_and_a_folder_of_one_name_write_nothing_outside(cache: CheckoutCache, tmp_path: Path) -> None:
    repo, blob = _bare(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    link = repo.write_object("blob", str(outside).encode())
    below = repo.write_tree([(FILE, b"planted", blob)])
    _publish(repo, repo.write_tree([("120000", b"x", link), ("40000", b"x", below)]))
    written = _write(cache, repo, tmp_path / "tree")
    assert list(outside.iterdir()) == []
    assert _reasons(written) == {"name_collision": 1}


@pytest.mark.parametrize(
    "name", [b"..", b".", b".git", b".GIT", b".git.", b".git ", b"git~1", b".g\xe2\x80\x8cit", b".git:x", b"a\\b"]
)
def test_names_that_mean_something_else_are_refused_and_counted(
    name: bytes, cache: CheckoutCache, tmp_path: Path
) -> None:
    assert refused_name(name)
    repo, blob = _bare(tmp_path)
    inner = repo.write_tree([(FILE, b"config", blob)])
    _publish(repo, repo.write_tree([("40000", name, inner), (FILE, b"kept", blob)]))
    dest = tmp_path / "deep" / "tree"
    dest.parent.mkdir()
    written = _write(cache, repo, dest)
    assert _tree(dest.parent) == {"tree/kept": b"content"}
    assert _reasons(written) == {"refused_path": 1}


@pytest.mark.parametrize("name", [b".gitignore", b".github", b"...", b"git", b"x.git", b"\xff\xfe", b"-rf", b"\x1b[2J"])
def test_odd_but_harmless_names_are_written(name: bytes, cache: CheckoutCache, tmp_path: Path) -> None:
    repo, blob = _bare(tmp_path)
    _publish(repo, repo.write_tree([(FILE, name, blob)]))
    dest = tmp_path / "tree"
    written = _write(cache, repo, dest)
    if name == b"...":  # means ".." on some file systems
        assert _reasons(written) == {"refused_path": 1}
    else:
        assert os.listdir(os.fsencode(dest)) == [name]
        assert written.not_scanned == ()


def test_submodules_lfs_pointers_odd_modes_and_missing_objects_are_counted(
    cache: CheckoutCache, tmp_path: Path
) -> None:
    repo, blob = _bare(tmp_path)
    pointer = repo.write_object("blob", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    _publish(
        repo,
        repo.write_tree([
            (FILE, b"a", blob),
            (FILE, b"large.bin", pointer),
            ("160000", b"sub", "1" * 40),
        ]),
    )  # fmt: skip
    written = _write(cache, repo, tmp_path / "tree")
    assert _reasons(written) == {"lfs_pointer": 1, "submodule": 1}
    assert next(e for e in written.not_scanned if e.reason == "submodule").examples == ("sub",)


def test_names_and_paths_beyond_what_a_file_system_takes_are_counted(cache: CheckoutCache, tmp_path: Path) -> None:
    repo, blob = _bare(tmp_path)
    deep = repo.write_tree([(FILE, b"bottom", blob)])
    for _ in range(60):
        deep = repo.write_tree([("40000", b"d" * 200, deep)])
    _publish(repo, repo.write_tree([("40000", b"deep", deep), (FILE, b"n" * 300, blob), (FILE, b"ok", blob)]))
    dest = tmp_path / "tree"
    written = _write(cache, repo, dest)
    assert _tree(dest) == {"ok": b"content"}
    assert _reasons(written) == {"path_too_long": 2}


def test_limits_cut_and_say_so(cache: CheckoutCache, tmp_path: Path) -> None:
    repo = Repo.work_tree(tmp_path / "src", files={f"f{n}": b"x" * 100 for n in range(10)} | {"huge": b"y" * 5000})
    few = _write(cache, repo, tmp_path / "few", TreeLimits(max_files=4))
    assert (few.files, _reasons(few)) == (4, {"tree_limit": 7})
    small = _write(cache, repo, tmp_path / "small", TreeLimits(max_bytes=350))
    assert (small.files, _reasons(small)) == (3, {"tree_limit": 8})
    files = _write(cache, repo, tmp_path / "files", TreeLimits(max_file_bytes=1000))
    assert (files.files, _reasons(files)) == (10, {"file_too_large": 1})


def test_a_tree_without_head_is_an_empty_folder(cache: CheckoutCache, tmp_path: Path) -> None:
    repo = Repo.bare_at(tmp_path / "empty.git")
    dest = tmp_path / "tree"
    assert _write(cache, repo, dest).files == 0
    assert list(dest.iterdir()) == []


def test_many_files_are_read_in_batches(cache: CheckoutCache, tmp_path: Path) -> None:
    files = {f"d{n % 50}/f{n}": f"content {n}" for n in range(3000)}
    repo = Repo.work_tree(tmp_path / "src", files=files)
    dest = tmp_path / "tree"
    written = _write(cache, repo, dest)
    assert written.files == 3000
    assert (dest / "d7/f57").read_text() == "content 57"


def test_the_hold_is_a_value_that_can_be_compared(cache: CheckoutCache, tmp_path: Path) -> None:
    repo = Repo.work_tree(tmp_path / "src", files={"a": "1"})
    with cache.hold(str(repo.path)) as held:
        assert isinstance(held, Repository)
        with pytest.raises(AttributeError):
            held.head = None  # type: ignore[misc]

"""The reader of refs says exactly what git would advertise, or sends the question to git."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from resweep.sources.gitcommand import GitCommand
from resweep.sources.gitrefs import Advertised, digest, parse_ls_remote, read_plain
from tests.support.commands import PlainRunner
from tests.support.repositories import Repo, git


@pytest.fixture
def command(tmp_path: Path) -> GitCommand:
    return GitCommand.prepare(tmp_path / "git-home", PlainRunner())


def _agree(command: GitCommand, repo: Repo) -> Advertised | None:
    plain = read_plain(repo.git_dir)
    asked = command.ls_remote(str(repo.path))
    if plain is not None:
        assert plain == asked
        assert plain.digest == asked.digest
    return plain


def _loose(repo: Repo, oid: str) -> None:
    del oid
    repo.run("branch", "side")


def _packed(repo: Repo, oid: str) -> None:
    del oid
    repo.run("tag", "-a", "v1", "-m", "one")
    repo.run("pack-refs", "--all")
    repo.run("branch", "later")


def _packed_then_moved(repo: Repo, oid: str) -> None:
    del oid
    repo.run("pack-refs", "--all")
    repo.commit({"b": "2"})


def _packed_then_deleted(repo: Repo, oid: str) -> None:
    del oid
    repo.run("branch", "gone/deep")
    repo.run("pack-refs", "--all")
    repo.run("branch", "-D", "gone/deep")


def _detached(repo: Repo, oid: str) -> None:
    del oid
    repo.run("checkout", "-q", "--detach")
    repo.commit({"c": "3"})


def _unborn(repo: Repo, oid: str) -> None:
    del oid
    repo.run("symbolic-ref", "HEAD", "refs/heads/nothing-yet")


def _broken_object(repo: Repo, oid: str) -> None:
    del oid
    repo.point("refs/heads/broken", "1" * 40)


def _other_refs(repo: Repo, oid: str) -> None:
    repo.run("update-ref", "refs/notes/x", oid)
    repo.run("update-ref", "refs/pull/1/head", oid)
    repo.run("pack-refs", "--all")


def _lock_left(repo: Repo, oid: str) -> None:
    repo.point("refs/heads/main.lock", oid)


def _no_trailing_newline(repo: Repo, oid: str) -> None:
    (repo.git_dir / "refs/heads/bare-end").write_text(oid)


PLAIN = [
    _loose,
    _packed,
    _packed_then_moved,
    _packed_then_deleted,
    _detached,
    _unborn,
    _broken_object,
    _other_refs,
    _lock_left,
    _no_trailing_newline,
]


@pytest.mark.parametrize("arrange", PLAIN, ids=lambda f: f.__name__.strip("_"))
def test_t12_plain_refs_are_read_without_a_program_and_equal_ls_remote(
    arrange: Callable[[Repo, str], None], command: GitCommand, tmp_path: Path
) -> None:
    repo = Repo.work_tree(tmp_path / "r", files={"a": "1"})
    arrange(repo, repo.head())
    assert _agree(command, repo) is not None


def _symbolic_branch(repo: Repo, oid: str) -> None:
    del oid
    repo.run("symbolic-ref", "refs/heads/alias", "refs/heads/main")


def _linked_ref(repo: Repo, oid: str) -> None:
    del oid
    (repo.git_dir / "refs/heads/linked").symlink_to("main")


def _hidden(repo: Repo, oid: str) -> None:
    del oid
    repo.run("branch", "secret")
    repo.run("config", "transfer.hideRefs", "refs/heads/secret")


def _hidden_by_include(repo: Repo, oid: str) -> None:
    del oid
    repo.run("branch", "secret")
    (repo.path / "more").write_text("[uploadpack]\n hideRefs = refs/heads/secret\n")
    repo.run("config", "include.path", str(repo.path / "more"))


def _odd_name(repo: Repo, oid: str) -> None:
    del oid
    repo.run("branch", "zweig-\u00fc")


def _bad_name(repo: Repo, oid: str) -> None:
    repo.point("refs/heads/two..dots", oid)


def _worktree_config(repo: Repo, oid: str) -> None:
    del oid
    repo.run("config", "extensions.worktreeConfig", "true")


NOT_PLAIN = [_symbolic_branch, _linked_ref, _hidden, _hidden_by_include, _odd_name, _bad_name, _worktree_config]


@pytest.mark.parametrize("arrange", NOT_PLAIN, ids=lambda f: f.__name__.strip("_"))
def test_t12_what_is_not_plain_is_left_to_git(
    arrange: Callable[[Repo, str], None], command: GitCommand, tmp_path: Path
) -> None:
    repo = Repo.work_tree(tmp_path / "r", files={"a": "1"})
    arrange(repo, repo.head())
    assert read_plain(repo.git_dir) is None
    assert command.ls_remote(str(repo.path)).refs["refs/heads/main"] == repo.head()


def test_sha256_repositories_are_left_to_git(command: GitCommand, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256", "--initial-branch=main", "s")
    repo = Repo(path=tmp_path / "s")
    head = repo.commit({"a": "1"})
    assert read_plain(repo.git_dir) is None
    assert command.ls_remote(str(repo.path)).refs == {"refs/heads/main": head}


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_read_the_same_by_file_and_by_git(seed: int, command: GitCommand, tmp_path: Path) -> None:
    choose = random.Random(seed)
    repo = Repo.work_tree(tmp_path / "r", files={"a": "1"})
    names = ["x", "y", "dir/x", "dir/y", "dir/deep/z", "release-1.0"]
    plain = 0
    for step in range(14):
        name = choose.choice(names)
        ref = choose.choice(["refs/heads/", "refs/tags/"]) + name
        match choose.randrange(6):
            case 0 | 1:
                repo.run("update-ref", ref, repo.commit({"a": str(step)}))
            case 2:
                repo.run("update-ref", "-d", ref)
            case 3:
                repo.run("pack-refs", "--all")
            case 4:
                repo.run("update-ref", ref, repo.head())
            case _:
                repo.run("tag", "-f", "-a", f"t{step}", "-m", "x")
        plain += _agree(command, repo) is not None
    assert plain == 14


def test_every_change_of_a_ref_or_of_head_changes_the_digest(tmp_path: Path) -> None:
    repo = Repo.work_tree(tmp_path / "r", files={"a": "1"})
    seen: list[bytes] = []

    def look() -> None:
        refs = read_plain(repo.git_dir)
        assert refs is not None
        seen.append(refs.digest)

    look()
    repo.run("branch", "side")
    look()
    repo.run("tag", "v1")
    look()
    repo.commit({"a": "2"})
    look()
    repo.run("symbolic-ref", "HEAD", "refs/heads/side")
    look()
    repo.run("branch", "-m", "main", "trunk")
    look()
    assert len(set(seen)) == len(seen)
    repo.run("pack-refs", "--all")
    look()
    assert seen[-1] == seen[-2], "where refs are stored is no change"


def test_a_ref_whose_time_and_size_are_kept_still_changes_the_digest(tmp_path: Path) -> None:
    repo = Repo.work_tree(tmp_path / "r", files={"a": "1"})
    old = repo.head()
    new = repo.commit({"a": "2"})
    ref = repo.git_dir / "refs/heads/main"
    before = read_plain(repo.git_dir)
    status = ref.stat()
    ref.write_text(f"{old}\n")
    os.utime(ref, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = read_plain(repo.git_dir)
    assert before is not None
    assert after is not None
    assert (before.refs["refs/heads/main"], after.refs["refs/heads/main"]) == (new, old)
    assert before.digest != after.digest


def test_digest_does_not_depend_on_order_and_knows_names_from_values() -> None:
    one = digest({"refs/heads/a": "1" * 40, "refs/heads/b": "2" * 40}, default_branch=None, detached=None)
    two = digest({"refs/heads/b": "2" * 40, "refs/heads/a": "1" * 40}, default_branch=None, detached=None)
    swapped = digest({"refs/heads/a": "2" * 40, "refs/heads/b": "1" * 40}, default_branch=None, detached=None)
    assert one == two != swapped


@pytest.mark.parametrize("line", [b"no tab here\n", b"zz\trefs/heads/a\n", b"\n\n12\trefs/heads/a\n"])
def test_answers_that_git_would_not_write_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"line|object id"):
        parse_ls_remote(line)


def test_pull_requests_and_peeled_tags_are_out_of_scope() -> None:
    oid = b"a" * 40
    output = b"".join(
        oid + b"\t" + name + b"\n"
        for name in (b"HEAD", b"refs/heads/m", b"refs/pull/1/head", b"refs/tags/v", b"refs/tags/v^{}")
    )
    refs = parse_ls_remote(b"ref: refs/heads/m\tHEAD\n" + output)
    assert set(refs.refs) == {"refs/heads/m", "refs/tags/v"}
    assert refs.default_branch == "refs/heads/m"

"""A hostile repository can waste at most its own budget and runs none of its code (promise 10; reliability.md 2D)."""

import os
import stat
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from resweep.runner.scanners.checkout import CheckoutCache
from resweep.schema.clock import SystemClock
from resweep.schema.errors import SourceFault, TargetFault
from resweep.sources.base import Access, Page, WalkLimits
from resweep.sources.catalog import Selection, Surroundings, make_source
from resweep.sources.gitcommand import GitCommand, GitSettings
from resweep.sources.specs import parse_spec
from tests.support.commands import PlainRunner
from tests.support.gitserver import packet, serve
from tests.support.repositories import Repo, git

FILE = "100644"


class House:
    """What the product works with, and a marker that no planted command may ever write."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sources = root / "sources"
        self.sources.mkdir()
        self.marker = root / "planted-command-ran"
        self.runner = PlainRunner()
        self.git = GitCommand.prepare(root / "git-home", self.runner, GitSettings(transfer_seconds=60))
        self.cache = CheckoutCache(root / "checkouts", git=self.git, clock=SystemClock(), limit_bytes=1 << 30)
        self.planted = root / "planted"
        self.planted.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{self.marker}'\nexit 0\n")
        self.planted.chmod(0o755)

    def sweep(self) -> list[Page]:
        """Discover everything below the sources folder."""
        source = make_source(
            Selection(kind="git", specs=(parse_spec(f"git:{self.sources}", cwd=self.root),)),
            Surroundings(git=self.git, clock=SystemClock(), excluded=(self.root / "checkouts",)),
        )
        return list(source.walk(WalkLimits()))

    def work_through(self, repo: Repo) -> str:
        """Do with one repository all that a worker does; the code of the fault that ended it, or ``done``."""
        try:
            with self.cache.hold(str(repo.path)) as held:
                self.cache.blobs_since(held, ())
                self.cache.synthetic_base(held, held.tips)
                self.cache.write_tree(held, self.root / f"tree-{time.monotonic_ns()}")
        except TargetFault as fault:
            return fault.code
        return "done"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def _config(house: House, repo: Repo) -> None:
    """Every configuration key that makes some git command start a program."""
    for key in (
        "core.fsmonitor",
        "core.sshCommand",
        "core.askPass",
        "core.editor",
        "core.pager",
        "core.gitProxy",
        "core.alternateRefsCommand",
        "credential.helper",
        "diff.external",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "uploadpack.packObjectsHook",
        "gpg.program",
        "sequence.editor",
        "interactive.diffFilter",
        "remote.origin.uploadpack",
        "remote.origin.vcs",
        "alias.upload-pack",
        "trace2.normalTarget",
        "pack.packObjectsHook",
    ):
        repo.run("config", key, str(house.planted))
    repo.run("config", "core.hooksPath", str(house.planted.parent / "evil-hooks"))
    repo.run("config", "remote.origin.url", f"ext::{house.planted}")
    repo.run("config", "protocol.ext.allow", "always")
    repo.run("config", "safe.directory", "*")


def _hooks(house: House, repo: Repo) -> None:
    for folder in (repo.git_dir / "hooks", house.root / "evil-hooks"):
        folder.mkdir(exist_ok=True)
        for name in (
            "post-checkout", "pre-receive", "post-receive", "update", "post-update", "reference-transaction",
            "pre-auto-gc", "post-rewrite", "proc-receive", "fsmonitor-watchman", "post-index-change", "pre-push",
        ):  # fmt: skip
            hook = folder / name
            hook.write_bytes(house.planted.read_bytes())
            hook.chmod(0o755)


def _attributes(house: House, repo: Repo) -> None:
    repo.commit({".gitattributes": "* filter=evil diff=evil merge=evil\n", "f": "1"})
    repo.run("config", "filter.evil.smudge", str(house.planted))
    (repo.git_dir / "info").mkdir(exist_ok=True)
    (repo.git_dir / "info/attributes").write_text("* filter=evil\n")


def _include(house: House, repo: Repo) -> None:
    (house.root / "more-config").write_text(
        f"[core]\n\tfsmonitor = {house.planted}\n[uploadpack]\n\tpackObjectsHook = {house.planted}\n"
    )
    repo.run("config", "include.path", str(house.root / "more-config"))


def _lazy_promisor(house: House, repo: Repo) -> None:
    """Objects that are missing here and promised by a remote whose transport is a command (CVE-2024-32004)."""
    repo.run("config", "core.repositoryformatversion", "1")
    repo.run("config", "extensions.partialClone", "origin")
    repo.run("config", "remote.origin.promisor", "true")
    repo.run("config", "remote.origin.url", str(house.root))
    repo.run("config", "remote.origin.uploadpack", str(house.planted))
    blob = repo.run("rev-parse", "HEAD:a")
    (repo.git_dir / "objects" / blob[:2] / blob[2:]).unlink()


def _submodules(house: House, repo: Repo) -> None:
    evil = f"ext::{house.planted}"
    repo.commit({".gitmodules": f'[submodule "x"]\n\tpath = x\n\turl = {evil}\n\tupdate = !{house.planted}\n'})
    repo.run("update-index", "--add", "--cacheinfo", f"160000,{repo.head()},x")
    repo.run("commit", "-q", "-m", "gitlink")


PLANTS: list[Callable[[House, Repo], None]] = [_config, _hooks, _attributes, _include, _lazy_promisor, _submodules]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda f: f.__name__.strip("_"))
def test_planted_commands_never_run(plant: Callable[[House, Repo], None], house: House) -> None:
    repo = Repo.work_tree(house.sources / "evil", files={"a": "1"})
    plant(house, repo)
    house.sweep()
    first = house.work_through(repo)
    (repo.git_dir / "refs/heads/later").write_text((repo.git_dir / "refs/heads/main").read_text())
    house.sweep()
    second = house.work_through(repo)
    assert not house.marker.exists(), house.marker.read_text()
    expected = "broken" if plant is _lazy_promisor else "done"
    assert (first, second) == (expected, expected)


def test_all_plants_in_one_repository_and_the_plants_are_live(house: House) -> None:
    repo = Repo.work_tree(house.sources / "evil", files={"a": "1"})
    for plant in (_attributes, _submodules, _hooks, _include, _config):
        plant(house, repo)
    house.sweep()
    assert house.work_through(repo) == "done"
    assert not house.marker.exists()
    # Plain git in the same folder does run them, so that the test above is not about duds.
    with suppress(AssertionError):  # git itself fails over what the plant answers
        git(repo.path, "status", "--short")
    assert house.marker.exists()


def test_the_lazy_promisor_is_live_for_plain_git(house: House) -> None:
    repo = Repo.work_tree(house.sources / "evil", files={"a": "1"})
    _lazy_promisor(house, repo)
    with suppress(AssertionError):
        git(repo.path, "cat-file", "-p", "HEAD:a")
    assert house.marker.exists()


def test_an_upload_pack_hook_of_a_protected_configuration_is_off(house: House) -> None:
    """``uploadpack.packObjectsHook`` is read from protected configuration only; ours sets it to nothing."""
    repo = Repo.work_tree(house.sources / "evil", files={"a": "1"})
    evil_global = house.root / "user-gitconfig"
    evil_global.write_text(f"[uploadpack]\n\tpackObjectsHook = {house.planted}\n")
    os.environ["GIT_CONFIG_GLOBAL"] = str(evil_global)
    try:
        assert house.work_through(repo) == "done"
    finally:
        del os.environ["GIT_CONFIG_GLOBAL"]
    assert not house.marker.exists()


@pytest.mark.parametrize(
    "name",
    ["GIT_TRACE", "GIT_TRACE2", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_DIR", "GIT_EXEC_PATH", "GIT_PROXY_COMMAND",
     "GIT_CONFIG_PARAMETERS", "GIT_TEMPLATE_DIR", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "LD_PRELOAD", "GIT_INDEX_FILE"],
)  # fmt: skip
def test_variables_of_the_outer_environment_do_not_reach_git(name: str, house: House) -> None:
    repo = Repo.work_tree(house.sources / "r", files={"a": "1"})
    os.environ[name] = str(house.root / "evil-value")
    try:
        assert name not in house.git.environment() or name == "GIT_SSH_COMMAND"
        assert house.work_through(repo) == "done"
    finally:
        del os.environ[name]
    assert not (house.root / "evil-value").exists()


def test_git_files_and_links_are_counted_and_never_followed(house: House) -> None:
    elsewhere = Repo.work_tree(house.root / "elsewhere", files={"private": "1"})
    (house.sources / "pointer").mkdir()
    (house.sources / "pointer/.git").write_text(f"gitdir: {elsewhere.git_dir}\n")
    (house.sources / "linked").mkdir()
    (house.sources / "linked/.git").symlink_to(elsewhere.git_dir)
    (house.sources / "dir-link").symlink_to(elsewhere.path)
    os.mkfifo(house.sources / "fifo")
    (house.sources / "piped").mkdir()
    os.mkfifo(house.sources / "piped/.git")
    pages = house.sweep()
    assert [page.observations for page in pages] == [()]
    assert pages[0].not_listed == {"git_file": 2, "symbolic_link": 2}
    for name in ("pointer", "linked", "piped"):
        with pytest.raises(TargetFault), house.cache.hold(str(house.sources / name)):
            pass


def test_a_folder_that_became_a_link_after_it_was_listed_is_refused(house: House) -> None:
    private = Repo.work_tree(house.root / "private", files={"secret": "1"})
    listed = Repo.work_tree(house.sources / "group/listed", files={"a": "1"})
    house.sweep()
    (house.sources / "group").rename(house.sources / "was")
    (house.sources / "group").mkdir()
    listed.path.symlink_to(private.path)
    assert house.work_through(listed) == "broken"
    (house.sources / "group/listed").unlink()
    (house.sources / "group").rmdir()
    private.path.rename(house.root / "listed")
    (house.sources / "group").symlink_to(house.root)
    assert house.work_through(listed) == "broken"


def test_a_work_tree_pointer_in_the_configuration_leads_nowhere(house: House) -> None:
    (house.root / "victim").mkdir()
    repo = Repo.work_tree(house.sources / "evil", files={"a": "1"})
    repo.run("config", "core.worktree", str(house.root / "victim"))
    assert house.work_through(repo) == "done"
    assert list((house.root / "victim").iterdir()) == []


def test_objects_through_links_are_served_by_git_and_nothing_is_linked_into_the_copy(house: House) -> None:
    """CVE-2022-39253: a local clone that follows links in objects; ours goes through the transport."""
    repo = Repo.work_tree(house.sources / "evil", files={"a": "1"})
    objects = repo.git_dir / "objects"
    objects.rename(house.root / "moved-objects")
    objects.symlink_to(house.root / "moved-objects")
    (house.root / "moved-objects" / "secret").symlink_to("/etc/passwd")
    house.sweep()
    assert house.work_through(repo) == "done"
    with house.cache.hold(str(repo.path)) as held:
        assert not [path for path in held.path.rglob("*") if path.is_symlink()]


def test_alternates_that_lead_nowhere_or_to_themselves(house: House) -> None:
    repo = Repo.work_tree(house.sources / "evil", files={"a": "1"})
    alternates = repo.git_dir / "objects/info/alternates"
    alternates.parent.mkdir(exist_ok=True)
    alternates.write_text(f"/nonexistent\n{repo.git_dir / 'objects'}\n/dev/zero\n")
    assert house.work_through(repo) == "done"


# -- refs


def test_packed_refs_with_names_no_git_would_write(house: House) -> None:
    repo = Repo.work_tree(house.sources / "evil", files={"a": "1"})
    head = repo.head()
    names = [
        b"refs/heads/--upload-pack=touch", b"refs/heads/\x1b[2Jx", b"refs/heads/a b", b"refs/heads/..",
        b"refs/heads/../../../x", b"refs/tags/x.lock", b"refs/heads/" + b"n" * 5000, b"refs/heads/\xff\xfe",
    ]  # fmt: skip
    (repo.git_dir / "packed-refs").write_bytes(
        b"# pack-refs with: peeled fully-peeled sorted \n"
        + b"".join(head.encode() + b" " + name + b"\n" for name in sorted(names))
    )
    house.sweep()
    house.work_through(repo)
    assert not house.marker.exists()
    outside = [path for path in house.root.rglob("*") if path.name == "x"]
    assert outside == []


def test_a_branch_named_like_an_option_is_only_a_name(house: House) -> None:
    repo = Repo.work_tree(house.sources / "evil", files={"a": "1"})
    repo.point("refs/heads/--upload-pack=touch", repo.head())
    repo.run("symbolic-ref", "HEAD", "refs/heads/--upload-pack=touch")
    with house.cache.hold(str(repo.path)) as held:
        assert held.head == repo.run("rev-parse", "refs/heads/main")
        assert house.cache.write_tree(held, house.root / "tree").files == 1


def test_twenty_thousand_refs_are_listed_and_held_in_bounded_time(house: House) -> None:
    repo = Repo.work_tree(house.sources / "many", files={"a": "1"})
    head = repo.head()
    lines = "".join(f"{head} refs/tags/t{n:05d}\n" for n in range(20_000))
    (repo.git_dir / "packed-refs").write_text(f"# pack-refs with: peeled fully-peeled sorted \n{lines}")
    started = time.monotonic()
    pages = house.sweep()
    with house.cache.hold(str(repo.path)) as held:
        assert len(held.refs) == 20_001
        assert held.digest == pages[0].observations[0].revision
    assert time.monotonic() - started < 30


def test_a_broken_ref_fails_this_target_and_no_other(house: House) -> None:
    good = Repo.work_tree(house.sources / "good", files={"a": "1"})
    bad = Repo.work_tree(house.sources / "bad", files={"a": "1"})
    bad.point("refs/heads/broken", "1" * 40)
    assert sum(len(page.observations) for page in house.sweep()) == 2
    assert house.work_through(bad) == "broken"
    assert house.work_through(good) == "done"


# -- objects


def test_a_corrupt_object_fails_this_target_only_and_leaves_no_half_copy(house: House) -> None:
    bad = Repo.work_tree(house.sources / "bad", files={"a": os.urandom(5000)})
    blob = bad.run("rev-parse", "HEAD:a")
    path = bad.git_dir / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:100])
    assert house.work_through(bad) == "broken"
    assert house.work_through(bad) == "broken"
    left = list((house.root / "checkouts/entries").rglob("*.git"))
    assert left == []


def test_an_object_that_unpacks_to_far_more_than_it_says(house: House) -> None:
    bad = Repo.bare_at(house.sources / "bomb.git")
    name = "aa" + "b" * 38
    (bad.git_dir / "objects/aa").mkdir()
    (bad.git_dir / "objects/aa" / name[2:]).write_bytes(zlib.compress(b"blob 5\0" + b"\0" * 50_000_000))
    bad.point("refs/heads/main", bad.write_commit(bad.write_tree([(FILE, b"bomb", name)])))
    assert house.work_through(bad) == "broken"


def test_a_tree_bomb_is_cut_at_the_limits(house: House) -> None:
    """Ten levels of ten names each: ten billion files from eleven objects."""
    bomb = Repo.bare_at(house.sources / "bomb.git")
    oid = bomb.write_tree([(FILE, b"f%d" % n, bomb.write_object("blob", b"boom")) for n in range(10)])
    for _ in range(9):
        oid = bomb.write_tree([("40000", b"d%d" % n, oid) for n in range(10)])
    bomb.point("refs/heads/main", bomb.write_commit(oid))
    limited = GitCommand.prepare(house.root / "git-home", house.runner, GitSettings(transfer_seconds=3))
    cache = CheckoutCache(house.root / "checkouts", git=limited, clock=SystemClock(), limit_bytes=1 << 30)
    started = time.monotonic()
    with cache.hold(str(bomb.path)) as held:
        count = cache.blobs_since(held, ())
        assert count is not None
        assert count.blobs == 1
        with pytest.raises(TargetFault) as caught:
            cache.write_tree(held, house.root / "tree")
    assert caught.value.code == "time_limit"
    assert time.monotonic() - started < 20


def test_a_tree_nested_thousands_deep(house: House) -> None:
    deep = Repo.bare_at(house.sources / "deep.git")
    oid = deep.write_tree([(FILE, b"bottom", deep.write_object("blob", b"x"))])
    for _ in range(3000):
        oid = deep.write_tree([("40000", b"d", oid)])
    deep.point("refs/heads/main", deep.write_commit(oid))
    assert house.work_through(deep) == "done"


def test_a_path_of_a_megabyte(house: House) -> None:
    long = Repo.bare_at(house.sources / "long.git")
    blob = long.write_object("blob", b"x")
    long.point("refs/heads/main", long.write_commit(long.write_tree([(FILE, b"n" * (1 << 20), blob)])))
    with house.cache.hold(str(long.path)) as held:
        written = house.cache.write_tree(held, house.root / "tree")
    assert [(entry.reason, entry.count) for entry in written.not_scanned] == [("path_too_long", 1)]
    assert len(written.not_scanned[0].examples[0]) <= 255


def test_names_that_paint_the_terminal_are_shown_harmlessly(house: House) -> None:
    repo = Repo.bare_at(house.sources / "paint.git")
    blob = repo.write_object("blob", b"version https://git-lfs.github.com/spec/v1\n")
    tree = repo.write_tree([(FILE, b"\x1b[2J\r::stop-commands::x\n", blob)])
    repo.point("refs/heads/main", repo.write_commit(tree))
    with house.cache.hold(str(repo.path)) as held:
        written = house.cache.write_tree(held, house.root / "tree")
    shown = written.not_scanned[0].examples[0]
    assert shown.isprintable()


# -- servers


@pytest.mark.parametrize(
    "refs",
    [
        [b"refs/heads/a", b"refs/heads/a/b"],
        [b"refs/heads/../../../../evil"],
        [b"refs/heads/x\nrefs/heads/y"],
        [b"refs/heads/" + b"n" * 2000],
        [b"refs/heads/Case", b"refs/heads/case"],
    ],
    ids=["folder-and-file", "dots", "newline", "long", "case"],
)
def test_a_server_that_advertises_impossible_refs_gets_nothing_written(refs: list[bytes], house: House) -> None:
    oid = b"a" * 40
    first, *rest = refs
    lines = [packet(b"# service=git-upload-pack\n"), b"0000"]
    lines += [packet(oid + b" " + first + b"\0side-band-64k\n"), *(packet(oid + b" " + name + b"\n") for name in rest)]
    with serve(house.sources) as server:
        server.refs = {"/evil": b"".join(lines) + b"0000"}
        with pytest.raises((TargetFault, SourceFault)), house.cache.hold(f"{server.url}/evil"):
            pass
    assert not list(house.root.rglob("*evil*"))


def test_refs_out_of_scope_are_not_even_looked_at(house: House) -> None:
    line = packet(b"a" * 40 + b" ../../evil\0side-band-64k\n")
    with serve(house.sources) as server:
        server.refs = {"/evil": packet(b"# service=git-upload-pack\n") + b"0000" + line + b"0000"}
        with house.cache.hold(f"{server.url}/evil") as held:
            assert held.refs == {}
    assert not list(house.root.rglob("*evil*"))


@pytest.mark.parametrize("answer", [b"", b"zzzz", b"ffff", b"0004" * 1000, os.urandom(5000)])
def test_a_server_that_answers_with_rubbish(answer: bytes, house: House) -> None:
    with serve(house.sources) as server:
        server.refs = {"/evil": answer}
        with pytest.raises((TargetFault, SourceFault)), house.cache.hold(f"{server.url}/evil"):
            pass


def test_a_redirect_to_another_transport_is_refused(house: House) -> None:
    """Only the address's own transport is open: a server cannot send git to a file, or to a command."""
    repo = Repo.work_tree(house.sources / "r", files={"a": "1"})
    for address, access in (
        (str(repo.path), Access(protocols=frozenset({"https"}))),
        (f"file://{repo.path}", Access(protocols=frozenset())),
        (f"ext::{house.planted}", Access(protocols=frozenset({"file", "https", "http", "ssh", "git"}))),
    ):
        result = house.git.run(("ls-remote", "--", address), access=access)
        assert result.exit_code != 0
        assert b"not allowed" in result.stderr
    assert not house.marker.exists()


def test_files_of_ours_are_closed_to_others(house: House) -> None:
    for name, mode in (("config", 0o600), ("askpass", 0o700), (".", 0o700)):
        assert stat.S_IMODE((house.root / "git-home" / name).stat().st_mode) == mode

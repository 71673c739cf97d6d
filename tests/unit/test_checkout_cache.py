"""The checkout cache holds exactly what is advertised, whatever happened before."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from resweep.runner.scanners.checkout import CheckoutCache, entry_key
from resweep.schema.clock import SystemClock
from resweep.schema.errors import SourceFault, TargetFault
from resweep.sources.base import Access, CommandResult, Credential
from resweep.sources.gitcommand import GitCommand, GitSettings
from resweep.sources.gitrefs import read_plain
from tests.support.commands import PlainRunner
from tests.support.gitserver import serve
from tests.support.repositories import Repo, all_objects, fresh_clone_refs, git

GIB = 1 << 30


@pytest.fixture
def runner() -> PlainRunner:
    return PlainRunner()


@pytest.fixture
def command(tmp_path: Path, runner: PlainRunner) -> GitCommand:
    return GitCommand.prepare(tmp_path / "git-home", runner)


@pytest.fixture
def cache(tmp_path: Path, command: GitCommand) -> CheckoutCache:
    return CheckoutCache(tmp_path / "checkouts", git=command, clock=SystemClock(), limit_bytes=GIB)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.work_tree(tmp_path / "src", files={"a.txt": "one\n"})


def _programs(runner: PlainRunner) -> list[str]:
    return [argv[1] for argv in runner.started]


def _entry(cache: CheckoutCache, repo: Repo) -> Path:
    return cache.root / "entries" / entry_key(str(repo.path), "git")


def test_a_copy_equals_a_plain_bare_clone(cache: CheckoutCache, repo: Repo, tmp_path: Path) -> None:
    repo.run("tag", "-a", "v1", "-m", "one")
    repo.run("branch", "side")
    repo.run("update-ref", "refs/pull/1/head", repo.commit({"b": "2"}))
    with cache.hold(str(repo.path)) as held:
        assert held.refs == fresh_clone_refs(repo.path, tmp_path / "plain")
        assert all_objects(held.path) == all_objects(tmp_path / "plain")
        assert held.digest == read_plain(repo.git_dir).digest  # type: ignore[union-attr]
        assert (held.head, held.default_branch) == (repo.head(), "refs/heads/main")
        assert held.tips == tuple(sorted({repo.head(), repo.run("rev-parse", "side")}))
        assert (held.rewritten, held.not_scanned) == (False, ())


def test_nothing_changed_costs_no_program_for_a_local_repository(
    cache: CheckoutCache, repo: Repo, runner: PlainRunner
) -> None:
    with cache.hold(str(repo.path)) as first:
        pass
    runner.started.clear()
    with cache.hold(str(repo.path)) as second:
        assert second == first
    assert runner.started == []


def test_a_push_is_fetched_and_counted_as_what_is_new(cache: CheckoutCache, repo: Repo) -> None:
    repo.commit({"big.txt": "x" * 5000})
    with cache.hold(str(repo.path)) as held:
        covered = held.tips
        whole = cache.blobs_since(held, ())
        nothing = cache.blobs_since(held, covered)
        assert whole is not None
        assert nothing is not None
        assert (whole.blobs, whole.bytes) == (2, 5004)
        assert (nothing.blobs, nothing.bytes) == (0, 0)
    repo.commit({"new.txt": "12345", "a.txt": "changed\n"})
    repo.run("tag", "v2")
    with cache.hold(str(repo.path)) as held:
        fresh = cache.blobs_since(held, covered)
        assert fresh is not None
        assert (fresh.blobs, fresh.bytes) == (2, 13)
        assert not held.rewritten
        base = cache.synthetic_base(held, covered)
        assert base is not None
        listed = git(held.path, "rev-list", f"{base}..{held.head}").split()
        assert listed == [held.head]
        assert git(held.path, "rev-parse", f"{base}^@").split() == list(covered)
        assert git(held.path, "fsck", "--strict", "--no-dangling") == ""


def test_a_base_over_many_tips_has_them_all_as_parents_and_is_no_part_of_the_scope(
    cache: CheckoutCache, repo: Repo
) -> None:
    tips = {repo.commit({f"f{n}": str(n)}) for n in range(30)}
    for number, tip in enumerate(sorted(tips)):
        repo.run("branch", f"b{number}", tip)
    with cache.hold(str(repo.path)) as held:
        base = cache.synthetic_base(held, held.tips)
        assert base is not None
        assert set(git(held.path, "rev-parse", f"{base}^@").split()) == set(held.tips)
        assert cache.synthetic_base(held, held.tips) == base
    with cache.hold(str(repo.path)) as again:
        assert again == held


def test_forced_push_removes_what_became_unreachable_before_the_next_scan(
    cache: CheckoutCache, repo: Repo, tmp_path: Path
) -> None:
    secret = repo.commit({"secret.txt": "leaked"})
    with cache.hold(str(repo.path)) as held:
        covered = held.tips
        assert cache.synthetic_base(held, covered)
        assert secret in all_objects(held.path)
    repo.run("reset", "-q", "--hard", "HEAD~1")
    repo.commit({"clean.txt": "ok"})
    repo.run("reflog", "expire", "--expire=now", "--all")
    with cache.hold(str(repo.path)) as held:
        assert held.rewritten
        assert secret not in all_objects(held.path)
        fresh_clone_refs(repo.path, tmp_path / "plain")
        assert all_objects(held.path) == all_objects(tmp_path / "plain")
        assert cache.blobs_since(held, covered) is None, "a covered tip that is gone makes the scan whole"
        assert cache.synthetic_base(held, covered) is None


def test_a_deleted_branch_is_a_rewrite_only_when_nothing_else_reaches_it(cache: CheckoutCache, repo: Repo) -> None:
    repo.run("branch", "merged")
    repo.run("checkout", "-q", "-b", "lost")
    lost = repo.commit({"lost": "1"})
    repo.run("checkout", "-q", "main")
    repo.commit({"more": "1"})
    with cache.hold(str(repo.path)):
        pass
    repo.run("branch", "-D", "merged")
    with cache.hold(str(repo.path)) as held:
        assert not held.rewritten
        assert set(held.refs) == {"refs/heads/main", "refs/heads/lost"}
    repo.run("branch", "-D", "lost")
    with cache.hold(str(repo.path)) as held:
        assert held.rewritten
        assert lost not in all_objects(held.path)


def test_old_dated_side_branch_and_moved_tag_are_seen(cache: CheckoutCache, repo: Repo) -> None:
    repo.run("tag", "nightly")
    with cache.hold(str(repo.path)) as before:
        pass
    old = repo.write_commit(repo.run("rev-parse", "HEAD^{tree}"), repo.head())
    repo.point("refs/heads/old-dated", old)
    repo.run("tag", "-f", "nightly", old)
    with cache.hold(str(repo.path)) as after:
        assert after.digest != before.digest
        assert not after.rewritten
        assert after.refs["refs/tags/nightly"] == old
        assert old in after.tips


def test_tags_on_tags_trees_and_blobs(cache: CheckoutCache, repo: Repo) -> None:
    repo.run("tag", "-a", "inner", "-m", "x")
    repo.run("tag", "-a", "outer", "-m", "x", "inner")
    with cache.hold(str(repo.path)) as held:
        covered = held.tips
        assert covered == (repo.head(),)
    blob = repo.run("hash-object", "-w", "--stdin", stdin=b"only a tag names this")
    repo.run("tag", "on-blob", blob)
    with cache.hold(str(repo.path)) as held:
        assert blob in held.tips
        assert cache.blobs_since(held, covered) is None, "no range of commits reaches a tagged blob"
        count = cache.blobs_since(held, held.tips)
        assert count is not None
        assert count.blobs == 0
    repo.run("tag", "-d", "on-blob")
    with cache.hold(str(repo.path)) as held:
        assert held.rewritten
        assert blob not in all_objects(held.path)


def test_a_branch_that_turns_into_a_folder_of_branches(cache: CheckoutCache, repo: Repo) -> None:
    repo.run("branch", "topic")
    with cache.hold(str(repo.path)):
        pass
    repo.run("branch", "-D", "topic")
    repo.run("branch", "topic/one")
    with cache.hold(str(repo.path)) as held:
        assert "refs/heads/topic/one" in held.refs
    repo.run("branch", "-D", "topic/one")
    repo.run("branch", "topic")
    with cache.hold(str(repo.path)) as held:
        assert set(held.refs) == {"refs/heads/main", "refs/heads/topic"}


def test_head_moves_between_branches_commits_and_nothing(cache: CheckoutCache, repo: Repo) -> None:
    repo.run("branch", "side")
    with cache.hold(str(repo.path)):
        pass
    repo.run("symbolic-ref", "HEAD", "refs/heads/side")
    with cache.hold(str(repo.path)) as held:
        assert held.default_branch == "refs/heads/side"
    repo.run("checkout", "-q", "--detach")
    alone = repo.commit({"alone": "1"})
    with cache.hold(str(repo.path)) as held:
        assert (held.head, held.default_branch) == (alone, None)
        assert alone in held.tips
        git(held.path, "cat-file", "-e", f"{alone}:alone")
    repo.run("symbolic-ref", "HEAD", "refs/heads/not-born")
    with cache.hold(str(repo.path)) as held:
        assert (held.head, held.default_branch, held.rewritten) == (None, None, True)
        assert alone not in all_objects(held.path)
        assert held.digest == read_plain(repo.git_dir).digest  # type: ignore[union-attr]


def test_an_empty_repository_is_held_and_grows(cache: CheckoutCache, tmp_path: Path) -> None:
    repo = Repo.work_tree(tmp_path / "empty")
    with cache.hold(str(repo.path)) as held:
        assert (held.refs, held.tips, held.head) == ({}, (), None)
        count = cache.blobs_since(held, ())
        assert count is not None
        assert count.blobs == 0
        assert cache.write_tree(held, tmp_path / "tree").files == 0
    repo.commit({"a": "1"})
    with cache.hold(str(repo.path)) as held:
        assert held.head == repo.head()
    repo.run("update-ref", "-d", "refs/heads/main")
    with cache.hold(str(repo.path)) as held:
        assert (held.refs, held.rewritten) == ({}, True)
        assert all_objects(held.path) == set()


def test_a_shallow_repository_is_held_and_says_so(cache: CheckoutCache, repo: Repo, tmp_path: Path) -> None:
    for number in range(4):
        repo.commit({"a": str(number)})
    git(tmp_path, "clone", "-q", "--depth=2", f"file://{repo.path}", "shallow")
    shallow = Repo(path=tmp_path / "shallow")
    with cache.hold(str(shallow.path)) as held:
        assert [entry.reason for entry in held.not_scanned] == ["shallow_history"]
    shallow.commit({"b": "new"})
    with cache.hold(str(shallow.path)) as held:
        assert held.head == shallow.head()


def test_sha256_repositories_are_held(cache: CheckoutCache, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256", "--initial-branch=main", "s")
    repo = Repo(path=tmp_path / "s")
    repo.commit({"a": "1"})
    with cache.hold(str(repo.path)) as held:
        covered = held.tips
    repo.commit({"b": "2"})
    with cache.hold(str(repo.path)) as held:
        count = cache.blobs_since(held, covered)
        assert count is not None
        assert (count.blobs, held.head) == (1, repo.head())
        base = cache.synthetic_base(held, covered)
        assert git(held.path, "rev-parse", f"{base}^@").split() == list(covered)


def test_a_thousand_branches_come_at_once(cache: CheckoutCache, repo: Repo) -> None:
    with cache.hold(str(repo.path)):
        pass
    lines = "".join(f"create refs/heads/b/{n} {repo.head()}\n" for n in range(1000))
    repo.run("update-ref", "--stdin", stdin=lines.encode())
    with cache.hold(str(repo.path)) as held:
        assert len(held.refs) == 1001
        assert (held.path / "packed-refs").exists()


def test_missing_path_is_told_apart_so_that_the_claim_can_be_released(cache: CheckoutCache, tmp_path: Path) -> None:
    with pytest.raises(TargetFault, match="does not exist on this machine") as caught, cache.hold(str(tmp_path / "no")):
        pass
    assert caught.value.code == "not_visible"


def test_a_folder_that_is_no_repository_is_the_targets_fault(cache: CheckoutCache, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(TargetFault) as caught, cache.hold(str(tmp_path / "plain")):
        pass
    assert caught.value.code == "broken"


# -- repair


def test_a_lost_or_cut_pack_is_noticed_and_the_copy_made_anew(cache: CheckoutCache, repo: Repo) -> None:
    with cache.hold(str(repo.path)) as held:
        pack = next((held.path / "objects" / "pack").glob("*.pack"))
    pack.chmod(0o600)
    pack.write_bytes(pack.read_bytes()[:-30])
    with cache.hold(str(repo.path)) as held:
        assert git(held.path, "fsck") == ""
    shutil.rmtree(held.path / "objects")
    with cache.hold(str(repo.path)) as held:
        assert git(held.path, "fsck") == ""
    (_entry(cache, repo) / "state.json").write_text("{not json")
    with cache.hold(str(repo.path)) as held:
        assert held.head == repo.head()


def test_bit_rot_that_no_size_shows_is_repaired_by_discard(cache: CheckoutCache, repo: Repo) -> None:
    with cache.hold(str(repo.path)) as held:
        pack = next((held.path / "objects" / "pack").glob("*.pack"))
    pack.chmod(0o600)
    content = bytearray(pack.read_bytes())
    content[20] ^= 0xFF
    pack.write_bytes(content)
    cache.discard(str(repo.path))
    with cache.hold(str(repo.path)) as held:
        assert git(held.path, "fsck") == ""


def test_locks_and_temporary_packs_of_a_killed_git_are_removed(cache: CheckoutCache, repo: Repo) -> None:
    with cache.hold(str(repo.path)) as held:
        pass
    entry = _entry(cache, repo)
    (entry / "dirty").touch()
    (entry / "new-0123.git").mkdir()
    for name in ("packed-refs.lock", "refs/heads/main.lock", "HEAD.lock", "config.lock"):
        (held.path / name).touch()
    (held.path / "objects/pack/tmp_pack_x").write_bytes(b"half")
    repo.commit({"b": "2"})
    with cache.hold(str(repo.path)) as held:
        assert held.head == repo.head()
    left = [path for path in entry.rglob("*") if path.suffix == ".lock" or "tmp_" in path.name or "new-" in path.name]
    assert left == []
    assert not (entry / "dirty").exists()


_KILLED = """
import sys, threading, os, signal, time
from pathlib import Path
from resweep.runner.scanners.checkout import CheckoutCache
from resweep.schema.clock import SystemClock
from resweep.sources.gitcommand import GitCommand
from tests.support.commands import PlainRunner
root, address = sys.argv[1:]
git = GitCommand.prepare(Path(root, "git-home"), PlainRunner())
cache = CheckoutCache(Path(root, "checkouts"), git=git, clock=SystemClock(), limit_bytes=1 << 30)
print("go", flush=True)
with cache.hold(address):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("delay", [0.0, 0.004, 0.01, 0.02, 0.04, 0.08])
def test_a_holder_killed_at_any_moment_leaves_what_the_next_one_repairs(
    delay: float, cache: CheckoutCache, repo: Repo, tmp_path: Path
) -> None:
    with cache.hold(str(repo.path)):
        pass
    for number in range(20):
        repo.commit({f"f{number}": os.urandom(2000)})
    repo.run("branch", "-f", "side", "HEAD~5")
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_KILLED), str(tmp_path), str(repo.path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == "go\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    with cache.hold(str(repo.path)) as held:
        assert held.refs == fresh_clone_refs(repo.path, tmp_path / "plain")
        assert all_objects(held.path) == all_objects(tmp_path / "plain")
        assert git(held.path, "fsck") == ""
    assert [p.name for p in _entry(cache, repo).iterdir() if p.name not in {"repository.git", "state.json"}] == []


# -- several workers


def _hold_in_process(root: str, address: str, rounds: int, overlap: object, failures: object) -> None:
    git_command = GitCommand.prepare(Path(root, "git-home"), PlainRunner())
    cache = CheckoutCache(Path(root, "checkouts"), git=git_command, clock=SystemClock(), limit_bytes=GIB)
    for _ in range(rounds):
        try:
            with cache.hold(address) as held:
                with overlap.get_lock():  # type: ignore[attr-defined]
                    overlap.value += 1  # type: ignore[attr-defined]
                    if overlap.value > 1:  # type: ignore[attr-defined]
                        failures.put("two at once")  # type: ignore[attr-defined]
                git(held.path, "cat-file", "-e", held.head or "HEAD")
                with overlap.get_lock():  # type: ignore[attr-defined]
                    overlap.value -= 1  # type: ignore[attr-defined]
        except Exception as error:  # noqa: BLE001 - the parent fails the test with it
            failures.put(repr(error))  # type: ignore[attr-defined]


def test_processes_and_pushes_at_once_never_share_an_entry(repo: Repo, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    overlap, failures = context.Value("i", 0), context.SimpleQueue()
    workers = [
        context.Process(target=_hold_in_process, args=(str(tmp_path), str(repo.path), 4, overlap, failures))
        for _ in range(3)
    ]
    for worker in workers:
        worker.start()
    for number in range(6):
        repo.commit({"a.txt": str(number)})
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    found: list[str] = []
    while not failures.empty():
        found.append(failures.get())
    assert found == []


def test_threads_wait_for_each_other_and_give_up_in_time(repo: Repo, tmp_path: Path, command: GitCommand) -> None:
    cache = CheckoutCache(tmp_path / "checkouts", git=command, clock=SystemClock(), limit_bytes=GIB, lock_seconds=0.2)
    codes: list[str] = []

    def second() -> None:
        try:
            with cache.hold(str(repo.path)):
                codes.append("held")
        except TargetFault as fault:
            codes.append(fault.code)

    with cache.hold(str(repo.path)):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert codes == ["busy"]
    second()
    assert codes == ["busy", "held"]


# -- room on disk


def test_least_recently_held_copies_leave_first_and_held_ones_stay(tmp_path: Path, command: GitCommand) -> None:
    repos = [Repo.work_tree(tmp_path / "src" / str(number), files={"a": os.urandom(200_000)}) for number in range(4)]
    cache = CheckoutCache(tmp_path / "checkouts", git=command, clock=SystemClock(), limit_bytes=800_000)
    for repo in repos[:3]:
        with cache.hold(str(repo.path)):
            time.sleep(0.01)
    with cache.hold(str(repos[0].path)):
        time.sleep(0.01)
    with cache.hold(str(repos[1].path)) as held:
        with cache.hold(str(repos[3].path)):
            pass
        assert cache.trim() <= 800_000
        assert held.path.exists(), "what is held is never removed"
    there = [_entry(cache, repo).exists() for repo in repos]
    assert there == [True, True, False, True], "the third was held longest ago"


def test_trash_of_a_killed_eviction_is_cleared(cache: CheckoutCache) -> None:
    trash = cache.root / "entries" / "trash-abc-1"
    trash.mkdir()
    (trash / "x").write_bytes(b"1")
    cache.trim()
    assert not trash.exists()


def test_a_blob_limit_leaves_large_blobs_out_and_counts_them(tmp_path: Path, command: GitCommand, repo: Repo) -> None:
    repo.commit({"large.bin": os.urandom(50_000), "small.txt": "x"})
    cache = CheckoutCache(
        tmp_path / "checkouts", git=command, clock=SystemClock(), limit_bytes=GIB, max_blob_bytes=10_000
    )
    with cache.hold(str(repo.path)) as held:
        covered = held.tips
        assert [(entry.reason, entry.count) for entry in held.not_scanned] == [("blob_too_large", 1)]
        count = cache.blobs_since(held, ())
        assert count is not None
        assert count.blobs == 2
        written = cache.write_tree(held, tmp_path / "tree")
        assert {entry.reason for entry in written.not_scanned} == {"blob_too_large"}
        assert written.files == 2
    repo.commit({"other.bin": os.urandom(60_000), "tiny.txt": "y"})
    with cache.hold(str(repo.path)) as held:
        assert [(entry.reason, entry.count) for entry in held.not_scanned] == [("blob_too_large", 2)]
        count = cache.blobs_since(held, covered)
        assert count is not None
        assert count.blobs == 1


class _FullOnce(PlainRunner):
    """The first clone finds the disk full, the next does not."""

    full = True

    def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        seconds: float,
        output_limit_bytes: int,
        stdin: bytes | None = None,
    ) -> CommandResult:
        if self.full and "clone" in argv:
            self.full = False
            stderr = b"fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output\n"
            return CommandResult(exit_code=128, stdout=b"", stderr=stderr)
        return super().__call__(
            argv, cwd=cwd, env=env, seconds=seconds, output_limit_bytes=output_limit_bytes, stdin=stdin
        )


def test_a_full_disk_costs_other_copies_first(cache: CheckoutCache, repo: Repo, tmp_path: Path) -> None:
    other = Repo.work_tree(tmp_path / "other", files={"a": "1"})
    with cache.hold(str(other.path)):
        pass
    with cache.with_runner(_FullOnce()).hold(str(repo.path)) as held:
        assert held.head == repo.head()
    assert not _entry(cache, other).exists()


def test_a_predecessor_killed_before_it_pruned_leaves_nothing_for_the_scanner(cache: CheckoutCache, repo: Repo) -> None:
    with cache.hold(str(repo.path)) as held:
        reachable = all_objects(held.path)
    stray = git(held.path, "hash-object", "-w", "--stdin", stdin=b"fetched, then killed")
    assert stray in all_objects(held.path)
    (_entry(cache, repo) / "dirty").touch()
    with cache.hold(str(repo.path)) as held:
        assert all_objects(held.path) == reachable
        assert not held.rewritten


# -- over the network


def test_addresses_are_held_over_http_with_a_credential_that_stays_out_of_sight(
    tmp_path: Path, runner: PlainRunner, cache: CheckoutCache, repo: Repo
) -> None:
    with serve(tmp_path) as server:
        server.password = "hunter2-not-a-real-one"
        address = f"{server.url}/src/.git"
        access = Access(protocols=frozenset({"http"}), credential=Credential(username="user", secret=server.password))
        with cache.hold(address, access=access) as held:
            assert held.head == repo.head()
        runner.started.clear()
        with cache.hold(address, access=access):
            assert _programs(runner) == ["ls-remote"], "unchanged costs one program"
        with pytest.raises(SourceFault) as caught, cache.hold(address):
            pass
        assert caught.value.code == "credential"
    assert not [argv for argv in runner.started if server.password in " ".join(argv)]
    for path in cache.root.rglob("*"):
        assert not path.is_file() or server.password.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [(404, TargetFault, "not_found"), (403, SourceFault, "credential"), (503, SourceFault, "server"),
     (429, SourceFault, "limited")],
)  # fmt: skip
def test_answers_of_a_server_are_told_apart(
    status: int, kind: type[SourceFault] | type[TargetFault], code: str, tmp_path: Path, cache: CheckoutCache
) -> None:
    with serve(tmp_path) as server:
        server.status = status
        with pytest.raises(kind) as caught, cache.hold(f"{server.url}/src/.git"):
            pass
        assert isinstance(caught.value, SourceFault | TargetFault)
        assert caught.value.code == code


def test_a_server_that_is_down_keeps_the_copy(tmp_path: Path, cache: CheckoutCache, repo: Repo) -> None:
    with serve(tmp_path) as server:
        address = f"{server.url}/src/.git"
        with cache.hold(address) as held:
            pass
    with pytest.raises(SourceFault) as caught, cache.hold(address):
        pass
    assert caught.value.code == "connect"
    assert held.path.exists()
    assert held.head == repo.head()


def test_time_that_is_up_is_the_sources_fault_for_addresses(tmp_path: Path, runner: PlainRunner, repo: Repo) -> None:
    del repo
    command = GitCommand.prepare(tmp_path / "git-home", runner, GitSettings(network_seconds=0.001))
    cache = CheckoutCache(tmp_path / "checkouts", git=command, clock=SystemClock(), limit_bytes=GIB)
    with serve(tmp_path) as server, pytest.raises(SourceFault) as caught, cache.hold(f"{server.url}/src/.git"):
        pass
    assert caught.value.code == "timeout"

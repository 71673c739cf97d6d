"""Source git over folders: everything that is there is listed or counted, and a partial walk never says complete."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from resweep.schema.clock import SystemClock
from resweep.schema.errors import SourceFault
from resweep.schema.records import Observation
from resweep.sources.base import Page, ProbeState, Source, WalkLimits
from resweep.sources.catalog import Selection, Surroundings, make_source
from resweep.sources.gitaddress import local_path
from resweep.sources.gitcommand import GitCommand
from resweep.sources.specs import parse_spec
from tests.support.commands import PlainRunner
from tests.support.repositories import Repo, git

NOBODY = 65_534


class Walked:
    """A whole walk, summed up."""

    def __init__(self, pages: list[Page]) -> None:
        self.pages = pages
        self.observations: list[Observation] = [entry for page in pages for entry in page.observations]
        self.names = [entry.display_name for entry in self.observations]
        self.faults = [fault for page in pages for fault in page.faults]
        self.not_listed: Counter[str] = Counter()
        for page in pages:
            self.not_listed.update(page.not_listed)
        self.complete = bool(pages) and pages[-1].complete
        assert not any(page.complete for page in pages[:-1])


@pytest.fixture
def runner() -> PlainRunner:
    return PlainRunner()


@pytest.fixture
def command(tmp_path: Path, runner: PlainRunner) -> GitCommand:
    return GitCommand.prepare(tmp_path / "git-home", runner)


def _source(command: GitCommand, spec: str, root: Path, **selection: tuple[str, ...]) -> Source:
    return make_source(
        Selection(kind="git", specs=(parse_spec(spec, cwd=root),), **selection),
        Surroundings(git=command, clock=SystemClock(), excluded=(root / "src" / "data",)),
    )


def _walk(command: GitCommand, root: Path, limits: WalkLimits | None = None, spec: str = "git:src") -> Walked:
    return Walked(list(_source(command, spec, root).walk(limits or WalkLimits())))


def test_work_trees_bare_and_nested_repositories_are_listed_once(
    command: GitCommand, runner: PlainRunner, tmp_path: Path
) -> None:
    src = tmp_path / "src"
    Repo.work_tree(src, files={"a": "1"})
    Repo.work_tree(src / "group/one", files={"a": "1"})
    Repo.work_tree(src / "group/one/vendor/inner", files={"a": "1"})
    Repo.bare_at(src / "bare.git")
    Repo.bare_at(src / "bare.git/modules/never-entered")
    (src / "empty-folder").mkdir()
    walked = _walk(command, tmp_path)
    assert walked.names == ["src", "bare.git", "group/one", "group/one/vendor/inner"]
    assert walked.complete
    assert walked.observations[0].name == walked.observations[0].address == str(src)
    assert all(entry.revision is not None and len(entry.revision) == 32 for entry in walked.observations)
    assert runner.started == [], "plain repositories cost no program"


def test_links_stores_linked_work_trees_and_data_dir_are_counted_and_not_listed(
    command: GitCommand, tmp_path: Path
) -> None:
    src = tmp_path / "src"
    main = Repo.work_tree(src / "main", files={"a": "1"})
    main.run("worktree", "add", "-q", str(src / "linked"), "-b", "side")
    library = Repo.work_tree(tmp_path / "library", files={"l": "1"})
    main.run("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "lib/sub")
    Repo.work_tree(src / "data/checkouts/x", files={"a": "1"})
    (src / "to-main").symlink_to(src / "main")
    (src / "loop").symlink_to(src)
    (src / "dangling").symlink_to("/nonexistent")
    walked = _walk(command, tmp_path)
    assert walked.names == ["main"]
    assert walked.not_listed == {
        "linked_work_tree": 1,
        "submodule": 1,
        "submodule_store": 1,
        "symbolic_link": 2,
        "excluded_folder": 1,
    }
    assert walked.complete


def test_broken_empty_and_odd_repositories_are_there_and_said_to_be(command: GitCommand, tmp_path: Path) -> None:
    src = tmp_path / "src"
    Repo.work_tree(src / "empty")
    broken = Repo.work_tree(src / "broken", files={"a": "1"})
    (broken.git_dir / "HEAD").write_text("nonsense")
    half = Repo.work_tree(src / "half", files={"a": "1"})
    shutil.rmtree(half.git_dir / "objects")
    (src / "stub/.git").mkdir(parents=True)
    walked = _walk(command, tmp_path)
    by_name = {entry.display_name: entry for entry in walked.observations}
    assert set(by_name) == {"empty", "broken", "half"}
    assert by_name["empty"].revision is not None
    assert by_name["broken"].revision is by_name["half"].revision is None
    assert sorted((fault.entry, fault.code) for fault in walked.faults) == [("broken", "broken"), ("half", "broken")]
    assert walked.not_listed == {"not_a_repository": 1}
    assert walked.complete, "they are listed, so nothing is missing"


def test_repositories_of_other_owners_are_read(command: GitCommand, runner: PlainRunner, tmp_path: Path) -> None:
    repo = Repo.work_tree(tmp_path / "src/theirs", files={"a": "1"})
    repo.run("symbolic-ref", "refs/heads/alias", "refs/heads/main")  # sends the question to git
    if os.geteuid() == 0:
        for path in [repo.path, *repo.path.rglob("*")]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    walked = _walk(command, tmp_path)
    assert [entry.revision is not None for entry in walked.observations] == [True]
    assert len(runner.started) == 1


@contextmanager
def _ordinary_user() -> Generator[Path, None, None]:
    """A folder of an ordinary user, and the process acting as one: root may read everything."""
    root = Path(tempfile.mkdtemp(prefix="resweep-test-"))
    was = os.geteuid()
    try:
        if was == 0:
            os.chown(root, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        yield root
    finally:
        os.seteuid(was)
        for path in [root, *root.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(root)


def test_a_folder_that_cannot_be_read_makes_the_walk_incomplete() -> None:
    with _ordinary_user() as root:
        command = GitCommand.prepare(root / "git-home", PlainRunner())
        Repo.work_tree(root / "src/open", files={"a": "1"})
        (root / "src/closed/inner").mkdir(parents=True)
        (root / "src/closed").chmod(0)
        walked = _walk(command, root)
        assert walked.names == ["open"]
        assert walked.not_listed == {"unreadable_folder": 1}
        assert [fault.code for fault in walked.faults] == ["unreadable"]
        assert not walked.complete


def test_a_repository_whose_store_is_closed_is_listed_without_a_revision() -> None:
    with _ordinary_user() as root:
        command = GitCommand.prepare(root / "git-home", PlainRunner())
        repo = Repo.work_tree(root / "src/closed", files={"a": "1"})
        repo.git_dir.chmod(0)
        walked = _walk(command, root)
        assert [(entry.display_name, entry.revision) for entry in walked.observations] == [("closed", None)]
        assert [fault.code for fault in walked.faults] == ["unreadable"]
        assert walked.complete, "it was seen; only its content is unknown"


def test_a_root_that_is_missing_or_empty_is_never_complete(command: GitCommand, tmp_path: Path) -> None:
    pages: list[Page] = []
    with pytest.raises(SourceFault, match="not mounted") as caught:
        pages.extend(_source(command, "git:src", tmp_path).walk(WalkLimits()))
    assert caught.value.code == "unreadable"
    assert not any(page.complete for page in pages)
    (tmp_path / "src").mkdir()
    assert not _walk(command, tmp_path).complete, "an empty mount point looks like this"
    (tmp_path / "file").write_text("x")
    with pytest.raises(SourceFault, match="is not a folder"):
        list(_source(command, "git:file", tmp_path).walk(WalkLimits()))


def test_one_missing_root_does_not_hide_the_others(command: GitCommand, tmp_path: Path) -> None:
    Repo.work_tree(tmp_path / "src/one", files={"a": "1"})
    specs = tuple(parse_spec(text, cwd=tmp_path) for text in ("git:missing", "git:src"))
    source = make_source(Selection(kind="git", specs=specs), Surroundings(git=command, clock=SystemClock()))
    pages: list[Page] = []
    with pytest.raises(SourceFault, match="missing"):
        pages.extend(source.walk(WalkLimits()))
    assert [entry.display_name for page in pages for entry in page.observations] == ["one"]
    assert not pages[-1].complete


def test_overlapping_roots_list_each_repository_once(command: GitCommand, tmp_path: Path) -> None:
    Repo.work_tree(tmp_path / "src/deep/one", files={"a": "1"})
    specs = tuple(parse_spec(text, cwd=tmp_path) for text in ("git:src", "git:src/deep"))
    source = make_source(Selection(kind="git", specs=specs), Surroundings(git=command, clock=SystemClock()))
    walked = Walked(list(source.walk(WalkLimits())))
    assert len(walked.observations) == 1
    assert walked.not_listed == {"duplicate": 1}


def test_limits_end_the_walk_and_it_is_not_complete(command: GitCommand, tmp_path: Path) -> None:
    for number in range(7):
        Repo.work_tree(tmp_path / f"src/r{number}")
    whole = _walk(command, tmp_path, WalkLimits(page_size=3))
    assert [len(page.observations) for page in whole.pages] == [3, 3, 1]
    assert whole.complete
    cut = _walk(command, tmp_path, WalkLimits(page_size=3, max_pages=2))
    assert len(cut.observations) == 6
    assert not cut.complete
    few = _walk(command, tmp_path, WalkLimits(max_results=4))
    assert len(few.observations) == 4
    assert not few.complete


def test_patterns_select_by_name(command: GitCommand, tmp_path: Path) -> None:
    for name in ("app/web", "app/api", "old/web"):
        Repo.work_tree(tmp_path / "src" / name)
    source = _source(command, "git:src", tmp_path, include=("app/*",), exclude=("*/api",))
    walked = Walked(list(source.walk(WalkLimits())))
    assert walked.names == ["app/web"]
    assert walked.not_listed == {"not_selected": 2}


@pytest.mark.parametrize(
    "name", [b"plain", b"sp ace", "\u00fcml".encode(), b"caf\xe9", b"new\nline", b"esc\x1b[2J", b"a:b", b"-rf", b"%41"]
)
def test_hostile_folder_names_are_listed_held_and_found_again(name: bytes, command: GitCommand, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"src", name)))
    repo = Repo.work_tree(path, files={"a": "1"})
    entry = _walk(command, tmp_path).observations[0]
    assert entry.name.isprintable()
    entry.name.encode("utf-8")
    assert local_path(entry.address) == str(path)
    assert command.ls_remote(entry.address).digest == entry.revision
    again = _source(command, f"git:{entry.address}", tmp_path)
    assert [found.address for page in again.walk(WalkLimits()) for found in page.observations] == [entry.address]
    assert repo.head()


def test_a_push_changes_exactly_one_revision(command: GitCommand, tmp_path: Path) -> None:
    repos = [Repo.work_tree(tmp_path / f"src/r{number}", files={"a": "1"}) for number in range(5)]
    before = {entry.name: entry.revision for entry in _walk(command, tmp_path).observations}
    repos[2].run("branch", "side", repos[2].write_commit(repos[2].run("rev-parse", "HEAD^{tree}")))
    after = {entry.name: entry.revision for entry in _walk(command, tmp_path).observations}
    assert [name for name in before if before[name] != after[name]] == [str(repos[2].path)]


def test_a_probe_tells_found_gone_and_unknown(command: GitCommand, tmp_path: Path) -> None:
    repo = Repo.work_tree(tmp_path / "src/one", files={"a": "1"})
    source = _source(command, "git:src", tmp_path)
    address = str(repo.path)
    found = source.probe(address, address)
    assert found.state is ProbeState.FOUND
    assert found.observation is not None
    assert found.observation.revision == command.ls_remote(address).digest
    shutil.rmtree(repo.path)
    assert source.probe(address, address).state is ProbeState.GONE
    shutil.rmtree(tmp_path / "src")
    assert source.probe(address, address).state is ProbeState.UNKNOWN, "an unmounted root proves nothing"


def test_a_source_says_what_it_reaches(command: GitCommand, tmp_path: Path) -> None:
    Repo.work_tree(tmp_path / "src/one", files={"a": "1"})
    assert _source(command, "git:src", tmp_path).check() == "1 repositories"
    git(tmp_path, "init", "-q", "src/two")
    (tmp_path / "src/two/.git/HEAD").write_text("x")
    assert _source(command, "git:src", tmp_path).check() == "2 repositories, 1 of them with problems"

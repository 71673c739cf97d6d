"""The main job whole, as a user runs it: thirty real repositories, a second run, pushes of every kind, a removal.

The repositories are made of successive releases of source distributions (``tests/support/corpus.py``).
``RESWEEP_TEST_SDISTS`` names a folder that already holds them.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from resweep.runner.scanners.identity import FindingsKey, load_key, repository_identity
from resweep.runner.scanners.kingfisher import SETTINGS
from resweep.schema.embedded import EmbeddedPostgres
from tests.support import corpus
from tests.support.require import missing

_COUNT = 30
_RELEASES = 3
_PACKAGES = 36  # a few more than repositories: one release that can't be had must not fail the run
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500), pytest.mark.xdist_group("main job")]

Place = tuple[str, str, str, bytes]  # repository, path, rule, identity


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A folder of repositories, a data folder, and the command line on both."""

    repositories: Path
    data: Path

    def once(self) -> subprocess.CompletedProcess[str]:
        """Run the main job until nothing is left to do."""
        return self.run("up", f"git:{self.repositories}", "--once", "--no-web")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line; fails the test with its words unless it ends with 0."""
        environment = {**os.environ, "RESWEEP_DATA_DIR": str(self.data), "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "resweep.runner", *arguments],
            env=environment,
            cwd=self.data.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the embedded database."""
        server = EmbeddedPostgres(self.data)
        try:
            with psycopg.connect(server.start()) as conn:
                return conn.execute(query.encode()).fetchall()
        finally:
            server.stop()

    def scans(self) -> list[tuple[str, int, str]]:
        """Every accepted completion: repository, lease token, result."""
        return [
            (Path(name).name, token, result)
            for name, token, result in self.rows(
                "SELECT t.normalized_target, h.lease_token, h.result FROM target_history h"
                " JOIN target t ON t.id = h.target_id"
                " WHERE h.outcome = 'done' ORDER BY h.finished_at, h.target_id"
            )
        ]

    def places(self) -> set[Place]:
        """Where findings stand: repository, path, rule, identity."""
        return {
            (Path(name).name, path, rule, bytes(identity))
            for name, path, rule, identity in self.rows(
                "SELECT t.normalized_target, p.path, f.rule, f.identity FROM finding f JOIN finding_place p ON"
                " p.finding_id = f.id JOIN target t ON t.id = f.target_id WHERE f.life <> 'fixed'"
            )
        }

    def lives(self) -> dict[tuple[str, bytes], str]:
        """The life of every finding by repository and identity."""
        return {
            (Path(name).name, bytes(identity)): life
            for name, identity, life in self.rows(
                "SELECT t.normalized_target, f.identity, f.life FROM finding f JOIN target t ON t.id = f.target_id"
            )
        }

    @property
    def key(self) -> FindingsKey:
        """The deployment's findings key."""
        (found,) = self.data.rglob("findings.key*")
        return load_key(found)

    def identity(self, repository: Path, rule: str, secret: str) -> bytes:
        """What the product calls this secret in this repository."""
        return self.key.identify(repository_identity("git", None, str(repository)), rule, secret.encode())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Thirty repositories that nothing was done with yet."""
    given = os.environ.get("RESWEEP_TEST_SDISTS")
    archives = Path(given) if given else Path(tempfile.gettempdir()) / f"resweep-sdists-{os.geteuid()}"
    if not given:
        corpus.download(archives, packages=_PACKAGES, releases=_RELEASES)
    base = tmp_path_factory.mktemp("main-job").resolve()
    try:
        corpus.make_corpus(base / "repositories", archives, _COUNT)
    except LookupError as error:
        missing("source distributions", str(error))
    return World(repositories=base / "repositories", data=base / "data")


def _bare_kingfisher(world: World, work: Path) -> set[Place]:
    """What the scanner alone says of a fresh bare clone of every repository, with the same flags."""
    found: set[Place] = set()
    program = Path(sys.executable).with_name("kingfisher")
    for repository in sorted(world.repositories.iterdir()):
        clone = work / repository.name
        subprocess.run(["git", "clone", "--quiet", "--bare", "--no-local", repository, clone], check=True)
        report = work / "report.json"
        command: list[str | Path] = [program, "scan", clone, "--format", "json", "-o", report, *SETTINGS]
        done = subprocess.run([*command, "--rule-cache-dir", work / "rules"], capture_output=True, check=False)
        assert done.returncode in {0, 200}, done.stderr.decode(errors="replace")
        listed: list[Any] = json.loads(report.read_bytes())["findings"] or []
        for item in listed:
            git = item["finding"].get("git_metadata")
            assert git, "these repositories hold every blob in a commit"
            secret, rule = item["finding"]["snippet"], item["rule"]["id"]
            found.add((repository.name, git["file"]["path"], rule, world.identity(repository, rule, secret)))
        report.unlink()
    return found


def test_the_main_job_from_first_run_to_removal(world: World, tmp_path: Path) -> None:
    # First run: everything is scanned once, and the findings are the bare scanner's.
    first = world.once()
    names = {repository.name for repository in world.repositories.iterdir()}
    assert len(names) == _COUNT
    assert sorted(name for name, _, _ in world.scans()) == sorted(names)
    assert "findings" in first.stdout
    expected = _bare_kingfisher(world, tmp_path)
    assert expected, "the corpus plants tokens"
    assert world.places() == expected

    # Second run: nothing is scanned.
    known = world.scans()
    assert "nothing" in world.once().stdout
    assert world.scans() == known

    # One push, then one of each odd kind: exactly one scan each, of what is new.
    repository = world.repositories / min(names)
    plain = corpus.fake_token("pushed plainly")
    side = corpus.fake_token("pushed to a side branch")
    old = corpus.fake_token("pushed with an old date")
    for token, branch, when in (
        (side, "feature/new", 1_700_000_000),
        (plain, "main", 1_700_000_000),
        (old, "main", 86_400),
    ):
        corpus.push(repository, {f"pushed/{branch}.ini": f'token = "{token}"\n'.encode()}, branch=branch, when=when)
        world.once()
        new = world.scans()[len(known) :]
        assert [name for name, _, _ in new] == [repository.name], f"one scan for the push to {branch}"
        known = world.scans()
        mine = {identity for name, _, _, identity in world.places() if name == repository.name}
        assert any(world.identity(repository, rule, token) in mine for rule in _rules(world))
    reads = world.rows(
        "SELECT h.finished_at, h.result FROM target_history h JOIN target t ON t.id = h.target_id"
        f" WHERE t.normalized_target = '{repository}' ORDER BY 1"
    )
    assert len(reads) == 4

    # History rewritten without the secret: one scan, and the finding is fixed.
    _git(repository, "update-ref", "refs/heads/main", _git(repository, "rev-parse", "refs/tags/r1"))
    world.once()
    assert [name for name, _, _ in world.scans()[len(known) :]] == [repository.name]
    lives = world.lives()
    for token, life in ((plain, "fixed"), (old, "fixed"), (side, "open")):
        seen = {lives.get((repository.name, world.identity(repository, rule, token))) for rule in _rules(world)} - {
            None
        }
        assert seen == {life}, f"{life} was expected"

    # And pushed again: the finding is back, and called so.
    corpus.push(repository, {"pushed/again.ini": f'token = "{plain}"\n'.encode()})
    world.once()
    lives = world.lives()
    again = {lives.get((repository.name, world.identity(repository, rule, plain))) for rule in _rules(world)} - {None}
    assert again == {"reopened"}

    # Nothing is left behind: no process of ours, no temporary file, no server.
    assert EmbeddedPostgres(world.data).status().state == "stopped"
    left = [
        path
        for path in world.data.rglob("*")
        if path.name.startswith(("tmp_", ".tmp")) or path.name.endswith(".lock.tmp")
    ]
    assert left == []


def _rules(world: World) -> list[str]:
    return [str(rule) for (rule,) in world.rows("SELECT DISTINCT rule FROM finding")]


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()

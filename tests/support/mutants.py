"""Takes one guard out of a copy of the product and runs named tests there: they have to fail (reliability F17).

The copy is a tree of its own with its own ``resweep`` in front of the installed one; the working tree is never touched.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_ROOMS = ("schema", "queue", "sources", "ledger", "mirror", "runner")
_SECONDS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One guard to take away: in ``file`` words become other words; ``test`` is pytest's name of who has to notice."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]  # everywhere in the file: a condition often stands in two places
    test: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the tests said: ``failed`` = some test failed, as opposed to an error of pytest itself."""

    failed: bool
    passed: bool
    output: str


def copy_tree(folder: Path) -> Path:
    """Copy what the tests need below ``folder``; returns the copy's root."""
    tree = folder / "tree"
    for room in (*_ROOMS, "tests", "benchmarks"):
        if (_ROOT / room).is_dir():
            shutil.copytree(
                _ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__", "results", "node_modules")
            )
    for name in ("pyproject.toml", "README.md"):
        if (_ROOT / name).is_file():
            shutil.copy(_ROOT / name, tree / name)
    package = folder / "site" / "resweep"
    package.mkdir(parents=True)
    for room in _ROOMS:
        if (tree / room).is_dir():
            (package / room).symlink_to(tree / room, target_is_directory=True)
    return tree


def apply(tree: Path, mutant: Mutant) -> None:
    """Take the guard out; ``LookupError`` when it no longer stands there."""
    path = tree / mutant.file
    text = path.read_text("utf-8")
    for words, instead in mutant.edits:
        if words not in text:
            message = f"{mutant.name}: {mutant.file} no longer holds {words!r}; say where the guard is now"
            raise LookupError(message)
        text = text.replace(words, instead)
    path.write_text(text, "utf-8")


def restore(tree: Path, mutant: Mutant) -> None:
    """Put the guard back."""
    shutil.copy(_ROOT / mutant.file, tree / mutant.file)


def judge(tree: Path, tests: Sequence[str], database_url: str) -> Verdict:
    """Run ``tests`` in the copy against a running server."""
    environment = os.environ | {
        "PYTHONPATH": str(tree.parent / "site"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "RESWEEP_TEST_DATABASE_URL": database_url,
        "RESWEEP_TEST_PLAN_ROWS": "200000",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly"]
    done = subprocess.run(
        [*command, *tests], cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    return Verdict(
        failed=done.returncode == 1, passed=done.returncode == 0, output=done.stdout[-4000:] + done.stderr[-1000:]
    )

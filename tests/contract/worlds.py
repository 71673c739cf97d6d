"""What each kind of source is tested against: a world of real targets that can be changed from outside.

A new adapter is tested by being listed in the catalog and given a world here; a listed adapter without one fails.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from resweep.schema.clock import SystemClock
from resweep.sources.base import Source
from resweep.sources.catalog import Selection, Surroundings, make_source
from resweep.sources.gitcommand import GitCommand
from resweep.sources.specs import parse_spec
from tests.support.commands import PlainRunner
from tests.support.repositories import Repo


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Targets that exist, a source that lists them, and ways to change them."""

    source: Source
    count: int  # targets that exist
    change: Callable[[int], str]  # moves the nth target on; returns its name
    hide: Callable[[], None]  # makes one part unreadable or unreachable, so that a listing cannot be complete
    programs: Callable[[], int]  # requests or programs made so far


def _git(root: Path) -> World:
    repos = [Repo.work_tree(root / f"src/r{number}", files={"a": "1"}) for number in range(5)]
    runner = PlainRunner()
    command = GitCommand.prepare(root / "git-home", runner)
    specs = (parse_spec("git:src", cwd=root), parse_spec("git:more", cwd=root))
    Repo.work_tree(root / "more", files={"a": "1"})
    source = make_source(Selection(kind="git", specs=specs), Surroundings(git=command, clock=SystemClock()))

    def hide() -> None:
        (root / "more").rename(root / "unmounted")

    def change(number: int) -> str:
        repos[number].commit({"a": "changed"})
        return str(repos[number].path)

    return World(
        source=source,
        count=6,
        change=change,
        hide=hide,
        programs=lambda: len(runner.started),
    )


WORLDS: Mapping[str, Callable[[Path], World]] = {"git": _git}

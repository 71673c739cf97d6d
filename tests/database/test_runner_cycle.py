"""One turn of discovery over real git repositories on a real database (queue.md, "Cycles"; T49-T58)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from resweep.queue import census, cycles
from resweep.queue.census import Filter
from resweep.queue.intake import count_changed_waiting
from resweep.queue.leases import claim
from resweep.queue.outcomes import complete
from resweep.queue.sources import list_sources
from resweep.runner.config import load
from resweep.runner.config_sources import from_spec
from resweep.runner.cycle import Cycle
from resweep.runner.events import CycleEnded
from resweep.runner.wiring import ActiveSource, make_adapter, register
from resweep.schema.clock import SystemClock
from resweep.schema.database import Database
from resweep.schema.records import Completion, State
from resweep.sources.gitcommand import GitCommand
from resweep.sources.specs import parse_spec
from tests.support.commands import PlainRunner
from tests.support.processes import commit, new_repository
from tests.support.queue import WORKER


class World:
    """A folder of repositories, and the source that watches it."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder / "far"
        self.folder.mkdir()
        self.database = database
        self._git = GitCommand.prepare(folder / "git", PlainRunner())
        self.configuration = load(None, environ={"RESWEEP_DATA_DIR": str(folder / "data")}, cwd=folder)

    def repository(self, name: str) -> Path:
        made = new_repository(self.folder / name)
        commit(made, {"a.txt": name})
        return made

    def source(self, **settings: Any) -> ActiveSource:
        config = from_spec(parse_spec(f"git:{self.folder}", cwd=self.folder), self.configuration.settings)
        config = replace(config, **settings)
        source_id = self.database.run(lambda conn: register(conn, config))
        adapter = make_adapter(self.configuration, config, self._git, SystemClock())
        return ActiveSource(config=config, source_id=source_id, adapter=adapter)

    def cycle(self, *, by_hand: bool = False, trigger: str = "schedule", **settings: Any) -> CycleEnded:
        cycle = Cycle(self.source(**settings), database=self.database, clock=SystemClock())
        return cycle.run(trigger, by_hand=by_hand)

    def scan_all(self) -> int:
        """Claim and complete everything that waits, as workers without scanners would."""

        def work(conn: Any) -> int:
            claims = claim(conn, WORKER, limit=1000)
            complete(conn, [Completion(target_id=c.target_id, lease_token=c.lease_token, reports=()) for c in claims])
            return len(claims)

        return self.database.run(work)

    def states(self) -> dict[str, State]:
        with self.database.connection() as conn:
            return {row.display_name: row.state for row in census.listing(conn, Filter()).rows}


@pytest.fixture
def world(tmp_path: Path, database: Database) -> World:
    return World(tmp_path, database)


def test_new_repositories_are_admitted_once_and_a_second_cycle_admits_nothing(world: World) -> None:
    world.repository("a")
    world.repository("b")
    first = world.cycle()
    assert (first.status, first.fetched, first.queued_new, first.queued_updated) == ("success", 2, 2, 0)
    assert world.scan_all() == 2
    second = world.cycle()
    assert (second.status, second.fetched, second.known, second.queued_new, second.queued_updated) == (
        "success",
        2,
        2,
        0,
        0,
    )
    assert world.scan_all() == 0


def test_t56_t57_a_push_is_admitted_as_updated_and_not_as_new(world: World) -> None:
    pushed = world.repository("a")
    world.repository("b")
    world.cycle()
    world.scan_all()
    commit(pushed, {"a.txt": "more"})
    third = world.cycle()
    assert (third.queued_new, third.queued_updated, third.moved) == (0, 1, 1)
    with world.database.connection() as conn:
        row = census.cycles(conn, limit=1)[0]
        (waiting,) = census.listing(conn, Filter(states=(State.PENDING,))).rows
    assert (row["queued_new_count"], row["queued_updated_count"]) == (0, 1)
    assert (waiting.display_name, waiting.admission.value) == ("a", "updated")


def test_t33_the_cap_holds_and_what_it_leaves_is_counted_and_comes_next(world: World) -> None:
    repositories = [world.repository(name) for name in "abcd"]
    world.cycle()
    world.scan_all()
    for repository in repositories:
        commit(repository, {"a.txt": "more"})
    one = world.cycle(updated_rescan_max_per_cycle=3)
    assert (one.queued_updated, one.changed_waiting) == (3, 1)
    assert world.scan_all() == 3
    two = world.cycle(updated_rescan_max_per_cycle=3)
    assert (two.queued_updated, two.changed_waiting) == (1, 0)


@pytest.mark.parametrize("settings", [{"updated_rescan_enabled": False}, {"updated_rescan_max_per_cycle": 0}])
def test_t52_with_rescans_off_or_a_cap_of_0_times_are_still_recorded(world: World, settings: dict[str, Any]) -> None:
    pushed = world.repository("a")
    world.cycle()
    world.scan_all()
    commit(pushed, {"a.txt": "more"})
    ended = world.cycle(**settings)
    assert (ended.queued_updated, ended.moved, ended.changed_waiting) == (0, 1, 1)


def test_a_cooldown_keeps_a_fresh_completion_back(world: World) -> None:
    pushed = world.repository("a")
    world.cycle()
    world.scan_all()
    commit(pushed, {"a.txt": "more"})
    assert world.cycle(updated_rescan_cooldown_seconds=3600.0).queued_updated == 0
    assert world.cycle(updated_rescan_cooldown_seconds=0.0).queued_updated == 1


def test_t53_t54_a_backlog_skips_the_cycle_and_asks_nobody(world: World) -> None:
    world.repository("a")
    world.cycle()
    world.repository("b")
    skipped = world.cycle()
    assert (skipped.status, skipped.reason, skipped.fetched) == ("skipped", "backlog", 0)
    assert world.states() == {"a": State.PENDING}


def test_a_backlog_may_be_observed_and_then_nothing_is_admitted(world: World) -> None:
    pushed = world.repository("a")
    world.repository("c")
    world.cycle()
    world.scan_all()
    world.repository("b")
    world.cycle()  # b waits now
    commit(pushed, {"a.txt": "more"})
    world.repository("d")
    ended = world.cycle(backlog_first="observe")
    assert (ended.status, ended.moved, ended.queued_new, ended.queued_updated) == ("success", 1, 0, 0)
    assert set(world.states()) == {"a", "b", "c"}


def test_a_person_who_asks_is_not_kept_back_by_a_backlog(world: World) -> None:
    world.repository("a")
    world.cycle()
    world.repository("b")
    ended = world.cycle(by_hand=True, trigger="manual")
    assert (ended.status, ended.queued_new) == ("success", 1)


def test_a_repository_that_is_gone_from_two_complete_listings_is_retired_and_comes_back(world: World) -> None:
    gone = world.repository("a")
    world.repository("b")
    world.cycle()
    world.scan_all()
    gone.rename(world.folder.parent / "elsewhere")
    assert world.cycle().retired == 0
    assert world.cycle().retired == 1
    assert world.states() == {"a": State.RETIRED, "b": State.DONE}
    (world.folder.parent / "elsewhere").rename(gone)
    world.cycle()
    assert world.states()["a"] is State.DONE


def test_an_emptied_folder_retires_nothing_and_is_a_health_event(world: World) -> None:
    gone = world.repository("a")
    world.cycle()
    world.scan_all()
    gone.rename(world.folder.parent / "elsewhere")
    for _ in range(3):
        ended = world.cycle()
        assert (ended.status, ended.reason, ended.retired) == ("partial", "zero_results", 0)
    assert world.states() == {"a": State.DONE}


def test_a_folder_that_is_gone_fails_the_cycle_pauses_the_source_at_the_third_and_removes_nothing(world: World) -> None:
    world.repository("a")
    world.cycle()
    world.scan_all()
    world.folder.rename(world.folder.with_name("unmounted"))
    for _ in range(3):
        ended = world.cycle()
        assert (ended.status, ended.reason) == ("failed", "unreadable")
    with world.database.connection() as conn:
        (row,) = list_sources(conn)
    assert (row.paused, row.paused_by, row.fault_streak) == (True, "faults", 3)
    assert world.states() == {"a": State.DONE}
    world.folder.with_name("unmounted").rename(world.folder)
    assert world.cycle().status == "success"
    with world.database.connection() as conn:
        (row,) = list_sources(conn)
    assert (row.paused, row.fault_streak) == (False, 0)


def test_a_broken_repository_makes_the_cycle_partial_with_its_name_and_is_listed_all_the_same(world: World) -> None:
    world.repository("a")
    broken = world.folder / "broken" / ".git"
    for folder in ("objects", "refs"):
        (broken / folder).mkdir(parents=True)
    (broken / "HEAD").write_text("garbage\n")
    ended = world.cycle()
    assert (ended.status, ended.reason, ended.fetched, ended.queued_new) == ("partial", "broken", 2, 2)
    assert (ended.fault_count, ended.faults[0][0]) == (1, "broken")
    with world.database.connection() as conn:
        assert list_sources(conn)[0].fault_streak == 0


def test_two_processes_never_run_a_cycle_of_one_source_at_once(world: World) -> None:
    world.repository("a")
    source = world.source()
    with world.database.direct() as other:
        assert cycles.hold(other, source.source_id)
        ended = world.cycle()
    assert (ended.status, ended.reason, ended.cycle_id) == ("skipped", "held", None)
    assert world.cycle().status == "success"


def test_a_cycle_whose_row_was_ended_by_somebody_writes_nothing_more(world: World) -> None:
    world.repository("a")

    class Ending:
        """The source's own adapter, and somebody who ends the cycle while it walks."""

        def __init__(self, source: ActiveSource, database: Database) -> None:
            self._adapter = source.adapter
            self._database = database
            self.capabilities = source.adapter.capabilities
            self.kind = source.adapter.kind

        def walk(self, limits: Any) -> Any:
            yield from self._adapter.walk(limits)
            self._database.run(
                lambda conn: conn.execute("UPDATE source_cycles SET status = 'failed', finished_at = now()")
            )

    source = world.source()
    fenced = ActiveSource(config=source.config, source_id=source.source_id, adapter=Ending(source, world.database))  # type: ignore[arg-type]
    ended = Cycle(fenced, database=world.database, clock=SystemClock()).run("schedule")
    assert (ended.status, ended.reason) == ("failed", "fenced")
    assert world.states() == {}


def test_a_walk_is_ended_when_the_process_stops_and_removes_nothing(world: World) -> None:
    world.repository("a")
    source = world.source()
    ended = Cycle(source, database=world.database, clock=SystemClock(), stopping=lambda: True).run("schedule")
    assert (ended.status, ended.reason) == ("partial", "stopped")
    with world.database.connection() as conn:
        row = census.cycles(conn, limit=1)[0]
    assert (row["status"], row["complete_listing"]) == ("partial", False)


def test_unchanged_targets_write_no_row_version(world: World, conn: Any) -> None:
    for name in "abc":
        world.repository(name)
    world.cycle()
    world.scan_all()
    before = conn.execute("SELECT id, xmin::text, ctid::text FROM target_hot ORDER BY id").fetchall()
    conn.commit()
    world.cycle()
    assert conn.execute("SELECT id, xmin::text, ctid::text FROM target_hot ORDER BY id").fetchall() == before


def test_changes_that_wait_are_admitted_by_a_walk_that_lists_nothing_new(world: World, conn: Any) -> None:
    pushed = world.repository("a")
    world.cycle()
    world.scan_all()
    commit(pushed, {"a.txt": "more"})
    world.cycle(updated_rescan_enabled=False)
    assert count_changed_waiting(conn, world.source().source_id) == 1
    assert world.cycle().queued_updated == 1

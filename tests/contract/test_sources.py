"""One suite over every adapter in the catalog (house.md, ``tests/contract``)."""

from pathlib import Path

import pytest

from resweep.schema.errors import SourceFault
from resweep.schema.records import Observation, TimeState
from resweep.sources.base import Page, ProbeState, WalkLimits
from resweep.sources.catalog import ADAPTERS
from resweep.sources.specs import KINDS
from tests.contract.worlds import WORLDS, World


@pytest.fixture(params=sorted(ADAPTERS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return WORLDS[request.param](tmp_path)


def _observations(pages: list[Page]) -> list[Observation]:
    return [entry for page in pages for entry in page.observations]


def test_the_catalog_holds_known_kinds_and_says_of_each_what_it_can_do() -> None:
    assert set(ADAPTERS) <= set(KINDS)
    for kind, adapter in ADAPTERS.items():
        assert adapter.kind == kind
        assert adapter.capabilities.time_signal or adapter.capabilities.revision, "something must tell a change"


def test_the_source_is_what_its_catalog_entry_says(world: World) -> None:
    entry = ADAPTERS[world.source.kind]
    assert world.source.capabilities == entry.capabilities


def test_t01_t02_a_walk_yields_every_target_once_with_a_storable_identity(world: World) -> None:
    found = _observations(list(world.source.walk(WalkLimits())))
    assert len(found) == world.count
    assert len({entry.name for entry in found}) == world.count
    for entry in found:
        assert entry.name
        assert entry.display_name.isprintable()
        assert "\0" not in entry.name + entry.address
        (entry.name + entry.address + entry.display_name).encode("utf-8")


def test_t07_t10_a_time_is_aware_and_said_only_when_valid(world: World) -> None:
    for entry in _observations(list(world.source.walk(WalkLimits()))):
        assert (entry.remote_modified_at is not None) == (entry.time_state is TimeState.VALID)
        if entry.remote_modified_at is not None:
            assert entry.remote_modified_at.utcoffset() is not None
        if not world.source.capabilities.time_signal:
            assert entry.time_state is TimeState.MISSING


def test_only_the_last_page_of_a_whole_walk_is_complete(world: World) -> None:
    pages = list(world.source.walk(WalkLimits(page_size=2)))
    assert len(pages) > 1
    assert [page.complete for page in pages] == [False] * (len(pages) - 1) + [
        world.source.capabilities.complete_listing
    ]


@pytest.mark.parametrize("limits", [WalkLimits(page_size=2, max_pages=1), WalkLimits(max_results=3)])
def test_a_walk_that_hits_a_limit_is_not_complete(world: World, limits: WalkLimits) -> None:
    pages = list(world.source.walk(limits))
    assert len(_observations(pages)) < world.count
    assert not any(page.complete for page in pages)


def test_nothing_is_removed_on_a_partial_walk(world: World) -> None:
    world.hide()
    pages: list[Page] = []
    try:
        pages.extend(world.source.walk(WalkLimits()))
    except SourceFault as fault:
        assert fault.code  # noqa: PT017 - either way of saying it is allowed
    assert not any(page.complete for page in pages)
    assert _observations(pages), "what could be listed was listed"


def test_two_walks_of_an_unchanged_world_say_the_same(world: World) -> None:
    first = _observations(list(world.source.walk(WalkLimits())))
    assert _observations(list(world.source.walk(WalkLimits()))) == first


def test_a_change_shows_in_the_changed_target_alone(world: World) -> None:
    before = {entry.name: entry for entry in _observations(list(world.source.walk(WalkLimits())))}
    name = world.change(1)
    after = {entry.name: entry for entry in _observations(list(world.source.walk(WalkLimits())))}
    assert [changed for changed in before if before[changed] != after[changed]] == [name]


def test_t12_no_extra_request_per_target(world: World) -> None:
    before = world.programs()
    pages = list(world.source.walk(WalkLimits()))
    assert world.programs() - before == sum(page.requests for page in pages)
    assert world.programs() - before < world.count


def test_a_probe_agrees_with_the_walk(world: World) -> None:
    if not world.source.capabilities.probe:
        return
    for entry in _observations(list(world.source.walk(WalkLimits()))):
        probe = world.source.probe(entry.name, entry.address)
        assert probe.state is ProbeState.FOUND
        assert probe.observation is not None
        assert (probe.observation.name, probe.observation.revision) == (entry.name, entry.revision)


def test_an_address_opens_as_few_transports_as_it_needs(world: World) -> None:
    for entry in _observations(list(world.source.walk(WalkLimits()))):
        assert 1 <= len(world.source.access(entry.address).protocols) <= 2

"""Names: a known id under a new name keeps its row; names are swapped and taken over inside one page."""

from typing import Any

from psycopg import Connection

from resweep.queue.admin import resolve, unresolve
from resweep.queue.census import history
from resweep.queue.intake import observe
from resweep.schema.records import State
from tests.support.queue import day, finish, row, scan, seen, source, state, take, target_id

Conn = Connection[Any]


def test_a_known_id_under_a_new_name_renames_the_row_in_place(conn: Conn) -> None:
    made = source(conn, kind="github")
    observe(conn, made, [seen("org/old", day(1), provider_id="1")], now=day(2))
    old = target_id(conn, "org/old")
    scan(conn, old, now=day(2))
    counts = observe(conn, made, [seen("org/new", day(3), provider_id="1")], now=day(4))
    assert (counts.renamed_count, counts.queued_new_count, counts.known_count, counts.moved_count) == (1, 0, 1, 1)
    renamed = row(conn, old)
    assert renamed["normalized_target"] == "org/new"
    assert renamed["address"] == "https://example.org/org/new"
    assert renamed["former_names"] == ["org/old"]
    assert renamed["state"] == "done"
    assert renamed["changed"]


def test_two_rows_of_one_page_swap_their_names(conn: Conn) -> None:
    made = source(conn, kind="github")
    observe(conn, made, [seen("a", provider_id="1"), seen("b", provider_id="2")])
    first, second = target_id(conn, "a"), target_id(conn, "b")
    counts = observe(conn, made, [seen("b", provider_id="1"), seen("a", provider_id="2")])
    assert counts.renamed_count == 2
    assert row(conn, first)["normalized_target"] == "b"
    assert row(conn, second)["normalized_target"] == "a"
    assert state(conn, first) is state(conn, second) is State.PENDING


def test_three_rows_turn_their_names_in_a_ring(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen(name, provider_id=name * 2) for name in "abc"])
    ids = {name: target_id(conn, name) for name in "abc"}
    observe(conn, made, [seen("b", provider_id="aa"), seen("c", provider_id="bb"), seen("a", provider_id="cc")])
    assert {name: row(conn, ids[name])["normalized_target"] for name in "abc"} == {"a": "b", "b": "c", "c": "a"}


def test_a_row_that_loses_its_name_to_a_known_one_is_unresolved(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", provider_id="1"), seen("b", provider_id="2")])
    first, second = target_id(conn, "a"), target_id(conn, "b")
    observe(conn, made, [seen("b", provider_id="1")])
    assert row(conn, first)["normalized_target"] == "b"
    lost = row(conn, second)
    assert lost["normalized_target"] == "b@id:2"
    assert (lost["state"], lost["unresolved_reason"]) == ("unresolved", "name_taken")
    assert [each.target_id for each in take(conn)] == [first]


def test_a_new_id_takes_a_known_name_over(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", provider_id="1")])
    old = target_id(conn, "a")
    counts = observe(conn, made, [seen("a", provider_id="2")])
    assert (counts.queued_new_count, counts.known_count) == (1, 0)
    assert row(conn, old)["normalized_target"] == "a@id:1"
    assert state(conn, old) is State.UNRESOLVED
    assert row(conn, "a")["provider_id"] == "2"


def test_a_lease_on_a_row_that_loses_its_name_is_lost(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", provider_id="1")])
    old = target_id(conn, "a")
    claims = take(conn)
    observe(conn, made, [seen("a", provider_id="2")])
    assert finish(conn, claims) == [None]
    assert state(conn, old) is State.UNRESOLVED
    assert [each.outcome for each in history(conn, old)] == ["unresolved"]


def test_who_lost_a_name_comes_back_when_its_id_is_seen_under_another(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", provider_id="1")])
    old = target_id(conn, "a")
    observe(conn, made, [seen("a", provider_id="2")])
    observe(conn, made, [seen("c", provider_id="1")])
    assert row(conn, old)["normalized_target"] == "c"
    assert state(conn, old) is State.PENDING
    assert row(conn, old)["unresolved_reason"] is None


def test_a_rename_and_a_take_over_in_one_page(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", provider_id="1")])
    old = target_id(conn, "a")
    counts = observe(conn, made, [seen("a", provider_id="2"), seen("a2", provider_id="1")])
    assert (counts.renamed_count, counts.queued_new_count) == (1, 1)
    assert row(conn, old)["normalized_target"] == "a2"
    assert state(conn, old) is State.PENDING
    assert row(conn, "a")["provider_id"] == "2"


def test_an_id_learnt_late_is_adopted(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a")])
    first = target_id(conn, "a")
    counts = observe(conn, made, [seen("a", provider_id="1")])
    assert (counts.known_count, counts.queued_new_count) == (1, 0)
    assert row(conn, first)["provider_id"] == "1"


def test_a_change_of_case_alone_is_no_rename_where_names_are_folded(conn: Conn) -> None:
    made = source(conn, kind="github")
    observe(conn, made, [seen("Org/Repo", provider_id="1")])
    counts = observe(conn, made, [seen("ORG/repo", provider_id="1")])
    assert counts.renamed_count == 0
    assert row(conn, "org/repo")["display_name"] == "ORG/repo"


def test_t43_only_a_resolver_settles_what_was_held_for_other_reasons(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", day(1), provider_id="1")], now=day(2))
    held = target_id(conn, "a")
    assert unresolve(conn, [held], reason="redirect") == [held]
    observe(conn, made, [seen("a", day(3), provider_id="1")], now=day(4))
    observe(conn, made, [seen("b", day(3), provider_id="1")], now=day(4))
    assert state(conn, held) is State.UNRESOLVED
    assert resolve(conn, held, name="c") is State.PENDING
    assert row(conn, held)["normalized_target"] == "c"
    assert resolve(conn, held) is None

"""Ignore rules: hidden with a reason, never dropped; nothing slips through between a scan and a new rule."""

import threading
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from resweep.queue import ignore_rules
from resweep.queue.findings import store
from resweep.queue.findings_reads import FindingFilter, count_findings, get_finding, life
from resweep.schema.errors import UsageFault
from tests.support.findings import add_targets, completion, finding, finding_ids, identity, place, report, versions


def _add(conn: Connection[Any], pattern: str, **changes: Any) -> int:
    values: dict[str, Any] = {"kind": "path", "reason": "fixtures", "by": "ann", **changes}
    return ignore_rules.add(conn, pattern=pattern, **values)


def _apply(conn: Connection[Any], rule_id: int) -> int:
    changed = after = 0
    while True:
        step = ignore_rules.apply(conn, rule_id, after_id=after, limit=2)
        changed += step.changed
        after = step.last_id
        if step.finished:
            return changed


def _status(conn: Connection[Any], finding_id: int) -> str:
    row = get_finding(conn, finding_id)
    assert row is not None
    return row.status


def test_a_path_rule_hides_what_stands_only_below_it(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    rule = _add(conn, "tests/")
    below, both = finding("one", place("tests/a.py")), finding("two", place("tests/a.py"), place("src/a.py"))
    counts = store(conn, [completion(target, report(below, both))])[target]
    assert (counts.new_count, counts.open_count) == (2, 1)
    hidden = [finding_id for finding_id in finding_ids(conn, target) if _status(conn, finding_id) == "ignored"]
    row = get_finding(conn, hidden[0])
    assert row is not None
    assert (len(hidden), row.masked, row.ignored_why, row.ignored_rule) == (1, "AKIA… one", "fixtures", rule)
    assert [event.kind for event in life(conn, hidden[0])] == ["opened", "ignored"]


def test_a_new_place_outside_makes_it_visible_again(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    _add(conn, "tests/")
    store(conn, [completion(target, report(finding("one", place("tests/a.py"))))])
    counts = store(
        conn, [completion(target, report(finding("one", place("src/a.py")), complete=False), lease_token=2)]
    )[target]
    assert counts.open_count == 1
    assert _status(conn, finding_ids(conn, target)[0]) == "open"


def test_an_inline_mark_hides_and_says_so(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one", place(mark="an example"))))])
    row = get_finding(conn, finding_ids(conn, target)[0])
    assert row is not None
    assert (row.status, row.ignored_why, row.ignored_rule) == ("ignored", "inline mark: an example", None)


def test_a_rule_by_identity_hides_wherever_it_holds(conn: Connection[Any]) -> None:
    first, second = add_targets(conn, 2)
    store(conn, [completion(first, report(finding("one"))), completion(second, report(finding("one")))])
    rule = _add(conn, identity("one").hex(), kind="identity", target_id=first)
    assert _apply(conn, rule) == 1
    assert _status(conn, finding_ids(conn, first)[0]) == "ignored"
    assert _status(conn, finding_ids(conn, second)[0]) == "open"


def test_a_rule_of_a_source_leaves_others_alone(conn: Connection[Any]) -> None:
    (mine,), (other,) = add_targets(conn, source="acme"), add_targets(conn, source="other")
    store(conn, [completion(mine, report(finding("one"))), completion(other, report(finding("one")))])
    row = conn.execute("SELECT id FROM source WHERE name = 'acme'").fetchone()
    assert row is not None
    assert _apply(conn, _add(conn, "*.py", source_id=row[0])) == 1
    assert (_status(conn, finding_ids(conn, mine)[0]), _status(conn, finding_ids(conn, other)[0])) == (
        "ignored",
        "open",
    )


def test_an_ended_rule_hides_nothing_and_stays_as_a_fact(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(*(finding(f"f{n}") for n in range(5))))])
    rule, wider = _add(conn, "*.py"), _add(conn, "src/", reason="all of it")
    assert _apply(conn, rule) == 5
    assert ignore_rules.remove(conn, rule, by="bob")
    assert not ignore_rules.remove(conn, rule, by="bob")
    _apply(conn, rule)
    row = get_finding(conn, finding_ids(conn, target)[0])
    assert row is not None
    assert (row.ignored_rule, row.ignored_why) == (wider, "all of it")
    ignore_rules.remove(conn, wider, by="bob")
    _apply(conn, wider)
    assert count_findings(conn, FindingFilter()) == {("open", "high"): 5}
    assert ignore_rules.list_rules(conn) == []
    assert [each.removed_by for each in ignore_rules.list_rules(conn, removed=True)] == ["bob", "bob"]


def test_an_ended_rule_also_lets_go_of_what_is_fixed(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    rule = _add(conn, "*.py")
    store(conn, [completion(target, report(finding("one")))])
    store(conn, [completion(target, report(), lease_token=2)])
    (finding_id,) = finding_ids(conn, target)
    assert _status(conn, finding_id) == "ignored"
    ignore_rules.remove(conn, rule, by="bob")
    _apply(conn, rule)
    assert _status(conn, finding_id) == "fixed"


def test_the_same_rule_again_is_the_same_rule(conn: Connection[Any]) -> None:
    assert _add(conn, "a/") == _add(conn, "a/")
    assert _add(conn, "a/") != _add(conn, "b/")


def test_applying_again_writes_nothing(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    rule = _add(conn, "*.py")
    store(conn, [completion(target, report(finding("one")))])
    before = len(life(conn, finding_ids(conn, target)[0]))
    assert _apply(conn, rule) == 0
    assert len(life(conn, finding_ids(conn, target)[0])) == before
    conn.commit()
    rows = versions(conn)
    store(conn, [completion(target, report(finding("one")), lease_token=2)])
    conn.commit()
    assert versions(conn) == rows


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"reason": " "}, "--why"),
        ({"by": ""}, "--who"),
        ({"source_id": 1, "target_id": 1}, "one of"),
        ({"kind": "identity"}, "64 hex"),
    ],
)
def test_a_rule_that_says_too_little_is_refused(conn: Connection[Any], changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageFault, match=says):
        _add(conn, "tests/", **changes)


def test_a_rule_added_while_a_scan_stores_waits_and_then_hides_it(conn: Connection[Any], database_url: str) -> None:
    (target,) = add_targets(conn)
    conn.commit()
    store(conn, [completion(target, report(finding("one")))])  # not committed
    added: list[int] = []

    def person() -> None:
        with psycopg.connect(database_url) as other:
            rule = _add(other, "*.py")
            other.commit()
            added.append(_apply(other, rule))
            other.commit()

    thread = threading.Thread(target=person)
    thread.start()
    thread.join(timeout=0.5)
    assert thread.is_alive()  # it waits for the scan that stored without the rule
    conn.commit()
    thread.join(timeout=10)
    assert added == [1]
    assert _status(conn, finding_ids(conn, target)[0]) == "ignored"

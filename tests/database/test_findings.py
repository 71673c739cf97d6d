"""The life of findings in the database: opened, fixed, reopened, with their places, in the completing transaction."""

from typing import Any

import psycopg
import pytest
from psycopg import Connection

from resweep.queue.findings import purge, store
from resweep.queue.findings_model import PLACES_KEPT
from resweep.queue.findings_reads import FindingFilter, count_findings, get_finding, life
from resweep.queue.triage import Decision, Verdict, decide
from resweep.schema.records import ScanOutcome
from tests.support.findings import (
    add_targets,
    completion,
    events,
    finding,
    finding_ids,
    identity,
    lives,
    place,
    report,
    stored_places,
    versions,
)


def test_a_first_scan_opens_what_it_finds(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    counts = store(conn, [completion(target, report(finding("one"), finding("two")), lease_token=7)])[target]
    assert (counts.new_count, counts.open_count, counts.fixed_count, counts.seen_count) == (2, 2, 0, 2)
    assert lives(conn, target) == {"AKIA… one": "open", "AKIA… two": "open"}
    assert {kind for _, kind, _ in events(conn, target)} == {"opened"}
    assert life(conn, finding_ids(conn, target)[0])[0].lease_token == 7


def test_an_unchanged_rescan_writes_nothing(conn: Connection[Any]) -> None:
    targets = add_targets(conn, 3)
    batch = [
        completion(
            target, report(*(finding(f"{target}-{n}", place(line=n + 1), place("b.py", n + 1)) for n in range(5)))
        )
        for target in targets
    ]
    store(conn, batch)
    conn.commit()
    before = versions(conn)
    counts = store(conn, batch)
    conn.commit()
    assert versions(conn) == before
    assert [counts[target].open_count for target in targets] == [5, 5, 5]
    assert sum(counts[target].new_count for target in targets) == 0


def test_gone_in_a_complete_scan_is_fixed_and_seen_again_is_reopened(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one"), finding("two")))])
    counts = store(conn, [completion(target, report(finding("two")), lease_token=2)])[target]
    assert (counts.fixed_count, counts.open_count) == (1, 1)
    assert lives(conn, target) == {"AKIA… one": "fixed", "AKIA… two": "open"}
    assert {row[0] for row in stored_places(conn, target)} == {identity("two")}
    counts = store(conn, [completion(target, report(finding("one"), finding("two")), lease_token=3)])[target]
    assert (counts.reopened_count, counts.new_count, counts.open_count) == (1, 0, 2)
    one = finding_ids(conn, target)[0] if lives(conn, target)["AKIA… one"] == "reopened" else -1
    kinds = {masked: [kind for m, kind, _ in events(conn, target) if m == masked] for masked in lives(conn, target)}
    assert kinds["AKIA… one"] == ["opened", "fixed", "reopened"]
    assert one > 0


@pytest.mark.parametrize(
    ("complete", "outcome"),
    [
        (False, ScanOutcome.CLEAN),
        (False, ScanOutcome.FINDINGS),
        (True, ScanOutcome.UNCHANGED),
        (True, ScanOutcome.LIMITED),
        (True, ScanOutcome.FAILED),
    ],
)
def test_what_is_no_complete_scan_closes_nothing(conn: Connection[Any], complete: bool, outcome: ScanOutcome) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one")))])
    store(conn, [completion(target, report(complete=complete, outcome=outcome), lease_token=2)])
    assert lives(conn, target) == {"AKIA… one": "open"}


def test_a_repository_that_became_empty_closes_everything(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one")))])
    store(conn, [completion(target, report(outcome=ScanOutcome.EMPTY), lease_token=2)])
    assert lives(conn, target) == {"AKIA… one": "fixed"}


def test_a_failed_scan_is_no_evidence(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one"), outcome=ScanOutcome.FAILED, complete=False))])
    assert lives(conn, target) == {}


def test_an_incremental_scan_adds_places_and_findings(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one", place("a.py"))))])
    counts = store(
        conn,
        [completion(target, report(finding("one", place("b.py", 9)), finding("two"), complete=False), lease_token=2)],
    )[target]
    assert (counts.new_count, counts.fixed_count, counts.open_count) == (1, 0, 2)
    assert {(row[2], row[3]) for row in stored_places(conn, target) if row[0] == identity("one")} == {
        ("a.py", 1),
        ("b.py", 9),
    }


def test_a_complete_scan_replaces_the_places_of_its_scanner_only(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(
        conn,
        [
            completion(
                target,
                report(finding("one", place("a.py"), place("b.py"))),
                report(finding("one", place("a.py")), scanner="gitleaks"),
            )
        ],
    )
    store(conn, [completion(target, report(finding("one", place("c.py"))), lease_token=2)])
    assert {row[1:3] for row in stored_places(conn, target)} == {("kingfisher", "c.py"), ("gitleaks", "a.py")}


def test_two_scanners_share_a_finding_and_both_must_lose_it(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one")), report(finding("one"), scanner="gitleaks"))])
    assert len(finding_ids(conn, target)) == 1
    store(conn, [completion(target, report(), lease_token=2)])
    assert lives(conn, target) == {"AKIA… one": "open"}
    store(conn, [completion(target, report(scanner="gitleaks"), lease_token=3)])
    assert lives(conn, target) == {"AKIA… one": "fixed"}
    row = get_finding(conn, finding_ids(conn, target)[0])
    assert row is not None
    assert (row.scanners, row.seen_by) == (("gitleaks", "kingfisher"), ())
    assert events(conn, target)[-1] == ("AKIA… one", "fixed", "gitleaks")


def test_a_scanner_closes_only_findings_of_rules_that_it_covers(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one"), finding("two", rule="github-pat")))])
    store(conn, [completion(target, report(rules=frozenset({"github-pat"})), lease_token=2)])
    assert lives(conn, target) == {"AKIA… one": "open", "AKIA… two": "fixed"}


def test_leaving_the_head_is_noted_on_the_place(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one", place())))])
    store(conn, [completion(target, report(finding("one", place(in_head=False))), lease_token=2)])
    assert {row[4] for row in stored_places(conn, target)} == {False}
    assert sum(count_findings(conn, FindingFilter(in_head=True)).values()) == 0
    assert sum(count_findings(conn, FindingFilter(in_head=False)).values()) == 1


def test_a_rule_that_changes_its_severity_changes_the_finding(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one")))])
    store(conn, [completion(target, report(finding("one", severity="critical")), lease_token=2)])
    row = get_finding(conn, finding_ids(conn, target)[0])
    assert row is not None
    assert row.severity == "critical"


def test_places_beyond_the_limit_are_counted_and_stay_stable(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    many = finding("one", *(place(line=n + 1, in_head=n == PLACES_KEPT + 10) for n in range(PLACES_KEPT + 11)))
    store(conn, [completion(target, report(many))])
    row = get_finding(conn, finding_ids(conn, target)[0])
    assert row is not None
    assert (row.place_count, row.unlisted_count, row.head_count) == (PLACES_KEPT, 11, 1)
    conn.commit()
    before = versions(conn)
    store(conn, [completion(target, report(many), lease_token=2)])
    conn.commit()
    assert versions(conn) == before


def test_the_same_secret_in_two_targets_is_two_findings(conn: Connection[Any]) -> None:
    first, second = add_targets(conn, 2)
    counts = store(conn, [completion(first, report(finding("one"))), completion(second, report(finding("one")))])
    assert (counts[first].new_count, counts[second].new_count) == (1, 1)
    store(conn, [completion(first, report(), lease_token=2)])
    assert (lives(conn, first), lives(conn, second)) == ({"AKIA… one": "fixed"}, {"AKIA… one": "open"})


def test_an_identity_of_another_length_is_refused(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    with pytest.raises(ValueError, match="identity of 3 bytes"):
        store(conn, [completion(target, report(finding("one", identity=b"abc")))])


def test_a_batch_costs_a_fixed_number_of_statements(conn: Connection[Any]) -> None:
    targets = add_targets(conn, 100)
    batch = [
        completion(target, report(*(finding(f"{target}-{n}", place(line=n + 1)) for n in range(10))))
        for target in targets
    ]
    assert _statements(conn, batch) <= 8
    conn.commit()
    assert _statements(conn, batch) == 2
    assert _statements(conn, [completion(target, report(outcome=ScanOutcome.UNCHANGED)) for target in targets]) == 0
    clean = add_targets(conn, 100)
    assert _statements(conn, [completion(target, report()) for target in clean]) == 1
    assert _statements(conn, [completion(target, report(), lease_token=2) for target in targets]) <= 8


def test_t64_hostile_text_is_stored_harmlessly_in_every_column(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    hostile = "a\x00b\udc80\x1b[2J<img onerror=x>\r\n'; DROP TABLE finding; --\u202e"
    bad = finding(
        "one",
        place(path=hostile, commit=hostile, blob=hostile, line=2**70, column=0, mark=hostile),
        place(path="x" * 1_000_000, line=-5, column=None, commit=None, blob=None),
        rule=hostile,
        rule_name=hostile,
        severity=hostile,
        confidence=hostile,
        masked=hostile,
    )
    scanner = 'we"ird\\,{}name'
    store(conn, [completion(target, report(bad, scanner=scanner))])
    conn.commit()
    before = versions(conn)
    store(conn, [completion(target, report(bad, scanner=scanner), lease_token=2)])
    conn.commit()
    assert versions(conn) == before
    row = get_finding(conn, finding_ids(conn, target)[0])
    assert row is not None
    assert row.scanners == (scanner,)
    assert row.severity == "medium"
    assert len(row.places) == 2
    assert "\x00" not in row.rule
    assert all(each.line is None for each in row.places)


def test_a_target_that_is_removed_takes_everything_along(conn: Connection[Any]) -> None:
    gone, kept = add_targets(conn, 2)
    store(conn, [completion(target, report(finding("one"), finding("two"))) for target in (gone, kept)])
    assert purge(conn, [gone]) == 2
    left = {table: len(rows) for table, rows in versions(conn).items()}
    assert (left["finding"], left["finding_place"], left["finding_event"]) == (2, 2, 2)
    assert finding_ids(conn, gone) == []
    assert purge(conn, [gone]) == 0


def test_two_targets_complete_at_once(conn: Connection[Any], database_url: str) -> None:
    first, second = add_targets(conn, 2)
    conn.commit()
    with psycopg.connect(database_url) as other:
        mine = store(conn, [completion(first, report(finding("one")))])
        theirs = store(other, [completion(second, report(finding("one")))])
        other.commit()
        conn.commit()
    assert (mine[first].new_count, theirs[second].new_count) == (1, 1)


def test_a_triage_between_read_and_write_survives_a_reopening(conn: Connection[Any], database_url: str) -> None:
    (target,) = add_targets(conn)
    store(conn, [completion(target, report(finding("one")))])
    store(conn, [completion(target, report(), lease_token=2)])
    conn.commit()
    (finding_id,) = finding_ids(conn, target)
    with psycopg.connect(database_url) as other:
        decide(other, [finding_id], Decision(verdict=Verdict.ACCEPTED, by="ann", why="test key"))
        # The reopening waits for the triage, and then changes only what is its own.
        conn.execute("SET lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            store(conn, [completion(target, report(finding("one")), lease_token=3)])
        conn.rollback()
        other.commit()
    counts = store(conn, [completion(target, report(finding("one")), lease_token=3)])[target]
    row = get_finding(conn, finding_id)
    assert row is not None
    assert (row.life, row.status, counts.open_count, counts.reopened_count) == ("reopened", "accepted", 0, 1)


def _statements(conn: Connection[Any], batch: list[Any]) -> int:
    """Count the statements that a call sends, at the server's own counter."""
    seen: list[str] = []
    before = conn.cursor_factory

    class Counting(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(str(query))
            return super().execute(query, *args, **kwargs)

    conn.cursor_factory = Counting
    try:
        store(conn, batch)
    finally:
        conn.cursor_factory = before
    return len(seen)

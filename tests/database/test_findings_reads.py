"""Lists, counts and exports of findings: filters, pages that meet without gap or overlap, a stream in one order."""

import itertools
import re
import tracemalloc
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import pytest
from psycopg import Connection

from resweep.queue import findings_owners
from resweep.queue.findings import store
from resweep.queue.findings_paths import parse
from resweep.queue.findings_reads import (
    FindingFilter,
    FindingRow,
    PageMark,
    count_findings,
    find_by_prefix,
    list_findings,
    stream_findings,
)
from resweep.queue.triage import Decision, Verdict, decide
from tests.support.findings import add_targets, completion, finding, finding_ids, identity, place, report

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def stored(conn: Connection[Any]) -> list[int]:
    targets = [*add_targets(conn, 2, source="acme"), *add_targets(conn, 1, source="zeta")]
    for number, target in enumerate(targets):
        store(
            conn,
            [
                completion(
                    target,
                    report(
                        finding("low", place("docs/a.md", in_head=False), severity="low"),
                        finding("crit", place("src/deep/b.py"), severity="critical", rule="private-key"),
                        finding("gone", place("src/c.py")),
                    ),
                    report(finding("info", place("x.lock"), severity="info"), scanner="gitleaks"),
                )
            ],
            now=NOW + timedelta(days=number),
        )
        store(
            conn,
            [
                completion(
                    target,
                    report(
                        finding("low", place("docs/a.md", in_head=False), severity="low"),
                        finding("crit", place("src/deep/b.py"), severity="critical", rule="private-key"),
                    ),
                    lease_token=2,
                )
            ],
            now=NOW + timedelta(days=number, hours=1),
        )
    return targets


def _words(rows: list[FindingRow]) -> list[str]:
    return [row.masked.removeprefix("AKIA… ") for row in rows]


@pytest.mark.usefixtures("stored")
def test_a_list_shows_the_worst_first(conn: Connection[Any]) -> None:
    assert _words(list_findings(conn, FindingFilter())) == ["crit"] * 3 + ["low"] * 3 + ["info"] * 3


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (FindingFilter(severities=("critical", "info")), {"crit": 3, "info": 3}),
        (FindingFilter(statuses=("fixed",)), {"gone": 3}),
        (FindingFilter(statuses=None), {"crit": 3, "low": 3, "info": 3, "gone": 3}),
        (FindingFilter(rules=("private-key",)), {"crit": 3}),
        (FindingFilter(sources=("zeta",)), {"crit": 1, "low": 1, "info": 1}),
        (FindingFilter(targets=("acme/r1",)), {"crit": 1, "low": 1, "info": 1}),
        (FindingFilter(scanner="gitleaks"), {"info": 3}),
        (FindingFilter(in_head=False), {"low": 3}),
        (FindingFilter(path=parse("src/**").regex()), {"crit": 3}),
        (FindingFilter(path=parse("*.lock").regex()), {"info": 3}),
        (FindingFilter(since=NOW + timedelta(days=2)), {"crit": 1, "low": 1, "info": 1}),
        (FindingFilter(statuses=None, since=NOW + timedelta(days=2, minutes=30)), {"gone": 1}),
        (FindingFilter(identities=(identity("low"),)), {"low": 3}),
        (FindingFilter(sources=("nobody",)), {}),
    ],
)
@pytest.mark.usefixtures("stored")
def test_filters_mean_the_same_for_lists_counts_and_streams(
    conn: Connection[Any], wanted: FindingFilter, words: dict[str, int]
) -> None:
    listed = _words(list_findings(conn, wanted, limit=1_000))
    assert {word: listed.count(word) for word in listed} == words
    assert sum(count_findings(conn, wanted).values()) == len(listed)
    assert sorted(_words(list(stream_findings(conn, wanted)))) == sorted(listed)


@pytest.mark.usefixtures("stored")
def test_pages_meet_without_gap_or_overlap(conn: Connection[Any]) -> None:
    everything = list_findings(conn, FindingFilter(statuses=None), limit=1_000)
    after: PageMark | None = None
    seen: list[int] = []
    while page := list_findings(conn, FindingFilter(statuses=None), after=after, limit=5):
        seen += [row.id for row in page]
        after = PageMark(page[-1].severity, page[-1].id)
    assert seen == [row.id for row in everything]
    assert len(set(seen)) == 12


@pytest.mark.usefixtures("stored")
def test_a_stream_is_grouped_by_repository_in_one_order(conn: Connection[Any]) -> None:
    rows = list(stream_findings(conn, FindingFilter()))
    keys = [(row.source, row.target, row.target_id, row.rule, row.identity) for row in rows]
    assert keys == sorted(keys)
    assert len([target for target, _ in itertools.groupby(row.target_id for row in rows)]) == 3


@pytest.mark.usefixtures("stored")
def test_a_finding_is_found_by_the_beginning_of_its_identity(conn: Connection[Any]) -> None:
    assert set(find_by_prefix(conn, identity("crit").hex()[:12].upper())) <= {
        row.id for row in list_findings(conn, FindingFilter(rules=("private-key",)))
    }
    assert len(find_by_prefix(conn, identity("crit").hex()[:12])) == 3
    assert find_by_prefix(conn, "%") == []


def test_triage_leaves_the_default_list(conn: Connection[Any], stored: list[int]) -> None:
    ids = finding_ids(conn, stored[0])
    decide(conn, ids, Decision(verdict=Verdict.ACCEPTED, by="ann", why="x"))
    assert sum(count_findings(conn, FindingFilter()).values()) == 6
    assert sum(count_findings(conn, FindingFilter(statuses=("accepted",))).values()) == 4


def test_places_come_with_those_in_the_head_first(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    places = [place("z.py", 2), place("a.py", in_head=False), place("z.py", 1)]
    store(conn, [completion(target, report(finding("one", *places)), report(finding("one", *places), scanner="b"))])
    (row,) = list_findings(conn, FindingFilter(), places=10)
    assert [(each.path, each.line, each.scanners) for each in row.places] == [
        ("z.py", 1, ("b", "kingfisher")),
        ("z.py", 2, ("b", "kingfisher")),
        ("a.py", 1, ("b", "kingfisher")),
    ]
    assert len(list_findings(conn, FindingFilter(), places=1)[0].places) == 1


def test_a_stream_needs_no_more_memory_for_more_rows(conn: Connection[Any]) -> None:
    targets = add_targets(conn, 20)
    store(conn, [completion(t, report(*(finding(f"{n}", place("p" * 500)) for n in range(300)))) for t in targets])
    conn.commit()
    tracemalloc.start()
    count = sum(1 for _ in stream_findings(conn, FindingFilter()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 6_000
    assert peak < 12_000_000


def test_owners_are_kept_once_and_worked_out_when_shown(conn: Connection[Any]) -> None:
    (target,) = add_targets(conn)
    assert findings_owners.remember(conn, target, path="CODEOWNERS", body="* @all\nsrc/ @acme/devs\x00\n")
    assert not findings_owners.remember(conn, target, path="CODEOWNERS", body="* @all\nsrc/ @acme/devs\x00\n")
    assert findings_owners.remember(conn, target, path="CODEOWNERS", body="* @all\nsrc/ @acme/devs\n")
    assert findings_owners.code_owners(conn, [target])[target].of("src/a.py") == ("@acme/devs",)
    assert findings_owners.remember(conn, target, path="CODEOWNERS", body=None)
    assert findings_owners.code_owners(conn, [target]) == {}


def test_the_filter_is_the_same_text_in_every_statement() -> None:
    def block(name: str) -> str:
        text = (files("resweep.queue.sql") / f"{name}.sql").read_text()
        begin = text.index("%(statuses)s::text[] IS NULL")
        end = text.index("p.path ~ %(path)s::text)", begin)
        return re.sub(r"\s+", " ", text[begin:end])

    assert block("findings_list") == block("findings_count") == block("findings_export")

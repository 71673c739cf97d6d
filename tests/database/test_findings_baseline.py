"""Baselines: what was accepted elsewhere is accepted here, and what does not match is told."""

import io
import json
from typing import Any

import pytest
from psycopg import Connection

from resweep.queue.findings import store
from resweep.queue.findings_baseline import accept_baseline, match_baseline, parse_baseline
from resweep.queue.findings_reads import FindingFilter, get_finding, list_findings
from resweep.runner.export.export import export_to_stream
from resweep.schema.errors import UsageFault
from tests.support.findings import RULE, add_targets, completion, finding, finding_ids, place, report

KINGFISHER = f"""
version: 2
fingerprint_algorithm: kingfisher-v1
repositories:
- id: local:///srv/r
  findings:
  - {{path: src dir/a.py, rule_id: {RULE.upper()}, line: 4, first_seen_at: 2026-01-01T00:00:00+00:00}}
  - {{path: src dir/a.py, rule_id: {RULE}, line: 5}}
"""


@pytest.fixture
def target(conn: Connection[Any]) -> int:
    first, second = add_targets(conn, 2)
    for each in (first, second):
        store(
            conn,
            [
                completion(
                    each,
                    report(finding(f"{each}-one", place("src dir/a.py", 4)), finding(f"{each}-two", place("b.py", 1))),
                )
            ],
        )
    return first


def _exported(conn: Connection[Any], form: Any) -> bytes:
    out = io.StringIO()
    export_to_stream(((row, ()) for row in list_findings(conn, FindingFilter())), form, out, version="1")
    return out.getvalue().encode()


def test_a_kingfisher_baseline_matches_rule_path_and_line_in_named_targets(conn: Connection[Any], target: int) -> None:
    entries = parse_baseline(KINGFISHER.encode(), "base.yaml")
    assert match_baseline(conn, entries, target_ids=None).finding_ids == ()
    match = match_baseline(conn, entries, target_ids=[target])
    assert (match.matched, [entry.line for entry in match.unmatched]) == (1, [5])
    assert accept_baseline(conn, match, name="base.yaml", by="ann") == list(match.finding_ids)
    row = get_finding(conn, match.finding_ids[0])
    assert row is not None
    assert row.triage is not None
    assert (row.status, row.target_id, row.triage.why) == ("accepted", target, "baseline base.yaml")


@pytest.mark.parametrize("form", ["json", "jsonl", "sarif"])
def test_what_we_export_is_a_baseline_by_identity(conn: Connection[Any], target: int, form: str) -> None:
    entries = parse_baseline(_exported(conn, form), "x")
    match = match_baseline(conn, entries, target_ids=None)
    assert (len(match.finding_ids), match.matched, match.unmatched) == (4, 4, ())
    assert match_baseline(conn, entries, target_ids=[target]).finding_ids == tuple(finding_ids(conn, target))


def test_sarif_of_others_matches_by_decoded_path(conn: Connection[Any], target: int) -> None:
    place_ = {"physicalLocation": {"artifactLocation": {"uri": "./src%20dir/a.py"}, "region": {"startLine": 4}}}
    text = json.dumps({"version": "2.1.0", "runs": [{"results": [{"ruleId": RULE, "locations": [place_]}, {}]}]})
    match = match_baseline(conn, parse_baseline(text.encode(), "x"), target_ids=[target])
    assert (match.matched, len(match.unmatched)) == (1, 1)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"nonsense",
        b"{",
        b"[1]",
        b'{"items": [{"identity": "00"}]}',
        b"\xff\xfe",
        b"a: [",
        b"[" * 100_000,
        b'{"a": 1}',
    ],
)
def test_what_is_no_baseline_is_refused_by_name(text: bytes) -> None:
    with pytest.raises(UsageFault, match=r"base\.json"):
        parse_baseline(text, "base.json")

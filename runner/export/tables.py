"""Findings as JSON, JSON lines and CSV, written one by one."""

import csv
from collections.abc import Iterable
from typing import TextIO

from ...queue.findings_reads import FindingRow
from ...schema.text import display
from .document import SCHEMA, finding_document, to_json

CSV_COLUMNS = (
    "id",
    "status",
    "severity",
    "rule",
    "rule_name",
    "source",
    "target",
    "path",
    "line",
    "column",
    "in_head",
    "place_count",
    "masked",
    "scanners",
    "owners",
    "first_commit",
    "first_seen_at",
    "last_seen_at",
    "fixed_at",
    "triage",
    "triage_by",
    "triage_why",
    "triage_until",
    "ignored_why",
    "identity",
)

# What a spreadsheet takes for a formula when a cell begins with it, the wide forms of East Asian input included.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")

Owned = tuple[FindingRow, tuple[str, ...]]
"""A finding and who owns its first place."""


def write_json(rows: Iterable[Owned], out: TextIO) -> int:
    """Write one document with all findings; the total stands at its end, for nothing is counted beforehand."""
    count = 0
    out.write(f'{{"schema": {SCHEMA}, "items": [')
    for row, owners in rows:
        out.write(",\n" if count else "\n")
        out.write(to_json(finding_document(row, owners)))
        count += 1
    out.write(f'{chr(10) if count else ""}], "total": {count}}}\n')
    return count


def write_jsonl(rows: Iterable[Owned], out: TextIO) -> int:
    """Write one document a line."""
    count = 0
    for row, owners in rows:
        out.write(to_json(finding_document(row, owners)) + "\n")
        count += 1
    return count


def write_csv(rows: Iterable[Owned], out: TextIO) -> int:
    """Write a table for people: one line a finding with its first place, safe to open in a spreadsheet."""
    table = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    table.writerow(CSV_COLUMNS)
    count = 0
    for row, owners in rows:
        table.writerow([cell(value) for value in _values(row, owners)])
        count += 1
    return count


def cell(value: object) -> str:
    """One cell: cleaned for a terminal, and never a formula."""
    text = "" if value is None else display(str(value))
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def _values(row: FindingRow, owners: tuple[str, ...]) -> tuple[object, ...]:
    """The cells of one finding, in the order of ``CSV_COLUMNS``."""
    document = finding_document(row, owners)
    place = row.places[0] if row.places else None
    triage = row.triage
    return (
        row.id,
        row.status,
        row.severity,
        row.rule,
        row.rule_name,
        row.source,
        row.display_name,
        place.path if place else None,
        place.line if place else None,
        place.column if place else None,
        "yes" if row.head_count else "no",
        row.place_count,
        row.masked,
        " ".join(row.scanners),
        " ".join(owners),
        row.first_commit,
        document["first_seen_at"],
        document["last_seen_at"],
        document["fixed_at"],
        triage.verdict if triage else None,
        triage.by if triage else None,
        triage.why if triage else None,
        triage.until.isoformat() if triage and triage.until else None,
        row.ignored_why,
        row.identity.hex(),
    )

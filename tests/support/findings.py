"""Builders for findings: targets to hang them on, reports as scanners hand them in; what is stored, read plainly."""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from psycopg import Connection

from resweep.queue.findings_reads import FindingRow, PlaceRow
from resweep.schema.records import Completion, Finding, Place, ScanOutcome, ScanReport

RULE = "aws-access-token"


def add_targets(conn: Connection[Any], count: int = 1, *, source: str = "acme") -> list[int]:
    """Store a source (once) and some targets; gives the targets' ids."""
    with conn.cursor(row_factory=_first) as cursor:
        cursor.execute(
            """
            INSERT INTO source (name, kind) VALUES (%s, 'git')
            ON CONFLICT (name) DO UPDATE SET kind = 'git' RETURNING id
            """,
            (source,),
        )
        source_id = cursor.fetchone()
        cursor.execute(
            """
            INSERT INTO target (source_id, normalized_target, display_name, address, discovered_at)
            SELECT %(source)s, n, n, 'https://example.org/' || n, now()
            FROM (
                SELECT %(name)s || '/r' || (g + (SELECT count(*) FROM target)) AS n
                FROM generate_series(1, %(count)s) AS g
            ) AS made
            RETURNING id
            """,
            {"source": source_id, "name": source, "count": count},
        )
        ids = [int(each) for each in cursor.fetchall()]
        cursor.execute(
            "INSERT INTO target_hot (id, source_id, not_before) SELECT unnest(%s::bigint[]), %s, now()",
            (ids, source_id),
        )
    return ids


def identity(name: str) -> bytes:
    """An identity that is told by a word."""
    return sha256(name.encode()).digest()


def place(path: str = "src/a.py", line: int | None = 1, **changes: Any) -> Place:
    """A place in the head unless said otherwise."""
    values: dict[str, Any] = {"column": 5, "commit": "c" * 40, "blob": "b" * 40, "in_head": True, **changes}
    return Place(path=path, line=line, **values)


def finding(name: str, *places: Place, **changes: Any) -> Finding:
    """A finding known by ``name``; without places it gets one."""
    values: dict[str, Any] = {
        "identity": identity(name),
        "rule": RULE,
        "rule_name": "AWS access token",
        "severity": "high",
        "confidence": "high",
        "masked": f"AKIA… {name}",
        "places": places or (place(),),
        **changes,
    }
    return Finding(**values)


def report(*findings: Finding, scanner: str = "kingfisher", complete: bool = True, **changes: Any) -> ScanReport:
    """What a scanner hands in; complete unless said otherwise."""
    values: dict[str, Any] = {
        "outcome": ScanOutcome.FINDINGS if findings else ScanOutcome.CLEAN,
        "coverage": None,
        **changes,
    }
    return ScanReport(scanner=scanner, complete=complete, findings=findings, **values)


def completion(target_id: int, *reports: ScanReport, lease_token: int = 1) -> Completion:
    """What a worker hands in for one claim."""
    return Completion(target_id=target_id, lease_token=lease_token, reports=reports)


def lives(conn: Connection[Any], target_id: int) -> dict[str, str]:
    """The life of each finding of a target, by its masked text."""
    return dict(_rows(conn, "SELECT masked, life FROM finding WHERE target_id = %s", target_id))


def stored_places(conn: Connection[Any], target_id: int) -> set[tuple[Any, ...]]:
    """Every place of a target: identity, scanner, path, line, whether in head."""
    query = """
        SELECT f.identity, p.scanner, p.path, p.line, p.in_head
        FROM finding AS f JOIN finding_place AS p ON p.finding_id = f.id WHERE f.target_id = %s
    """
    return {(bytes(row[0]), *row[1:]) for row in _rows(conn, query, target_id)}


def events(conn: Connection[Any], target_id: int) -> list[tuple[str, str, str]]:
    """The whole life of a target's findings in order: masked text, kind, by whom."""
    query = """
        SELECT f.masked, e.kind, e.by FROM finding AS f JOIN finding_event AS e ON e.finding_id = f.id
        WHERE f.target_id = %s ORDER BY e.id
    """
    return _rows(conn, query, target_id)


def finding_ids(conn: Connection[Any], target_id: int) -> list[int]:
    """Ids of a target's findings, in order."""
    return [row[0] for row in _rows(conn, "SELECT id FROM finding WHERE target_id = %s ORDER BY id", target_id)]


def versions(conn: Connection[Any]) -> dict[str, Sequence[tuple[Any, ...]]]:
    """Every row version of the tables of findings: two equal answers prove that nothing was written between."""
    tables = ("finding", "finding_place", "finding_event", "ignore_rule", "target_code_owners")
    return {
        table: _rows(conn, f"SELECT xmin::text, xmax::text, ctid::text FROM {table} ORDER BY ctid") for table in tables
    }


def key_of(text: str) -> UUID:
    """A UUID told by a word."""
    return UUID(bytes=sha256(text.encode()).digest()[:16])


def _first(cursor: Any) -> Any:
    """Row factory: the first column alone."""

    def first(values: Sequence[Any]) -> Any:
        return values[0]

    return first


def _rows(conn: Connection[Any], query: str, *parameters: Any) -> list[Any]:
    with conn.cursor(row_factory=_plain) as cursor:
        cursor.execute(query.encode(), parameters)
        return list(cursor.fetchall())


def _plain(cursor: Any) -> Any:
    """Row factory: a tuple, whatever the connection's own."""
    return tuple


def row(number: int = 1, *places: PlaceRow, **changes: Any) -> FindingRow:
    """A finding as it is read back, for what writes findings out."""
    values: dict[str, Any] = {
        "id": number,
        "target_id": 1,
        "source": "acme",
        "target": "r1",
        "display_name": "r1",
        "address": "https://example.org/r1.git",
        "identity": identity(str(number)),
        "rule": RULE,
        "rule_name": "AWS access token",
        "severity": "high",
        "confidence": "high",
        "masked": "AKIA… (20 characters)",
        "status": "open",
        "life": "open",
        "scanners": ("kingfisher",),
        "seen_by": ("kingfisher",),
        "place_count": len(places),
        "head_count": 1,
        "unlisted_count": 0,
        "first_commit": "c" * 40,
        "first_seen_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "last_seen_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "fixed_at": None,
        "reopened_at": None,
        "triage": None,
        "ignored_why": None,
        "ignored_rule": None,
        "places": places or (place_row(),),
        **changes,
    }
    return FindingRow(**values)


def place_row(path: str = "src/a.py", line: int | None = 3, **changes: Any) -> PlaceRow:
    """A place as it is read back."""
    values: dict[str, Any] = {
        "column": 5,
        "commit": "c" * 40,
        "blob": "b" * 40,
        "in_head": True,
        "scanners": ("kingfisher",),
        **changes,
    }
    return PlaceRow(path=path, line=line, **values)

"""Read findings: pages with filters, counts, one with its life, and a stream of all for exports."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from psycopg import Connection
from psycopg.rows import tuple_row

from ..schema.database import statement
from .findings_model import SEVERITIES, severity_rank

Status = Literal["open", "reopened", "fixed", "accepted", "false_positive", "ignored"]

STATUSES: Final[tuple[Status, ...]] = ("open", "reopened", "fixed", "accepted", "false_positive", "ignored")
ACTIONABLE: Final[tuple[Status, ...]] = ("open", "reopened")
"""What waits for somebody: the default of lists and exports."""

_SQL: Final = "resweep.queue.sql"
_FETCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFilter:
    """Which findings are meant; None means any. Everything given must hold together."""

    statuses: tuple[Status, ...] | None = ACTIONABLE
    severities: tuple[str, ...] | None = None
    rules: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None  # names or display names
    target_ids: tuple[int, ...] | None = None
    finding_ids: tuple[int, ...] | None = None
    identities: tuple[bytes, ...] | None = None
    path: str | None = None  # a regular expression as findings_paths gives it
    scanner: str | None = None  # ever found by
    in_head: bool | None = None
    since: datetime | None = None  # first seen, reopened or fixed at or after

    def parameters(self, now: datetime | None) -> dict[str, Any]:
        """The filter as the statements take it."""
        return {
            "statuses": list(self.statuses) if self.statuses is not None else None,
            "standing": self.statuses is not None and set(self.statuses) <= set(ACTIONABLE),
            "severities": [severity_rank(each) for each in self.severities] if self.severities is not None else None,
            "rules": _list(self.rules),
            "sources": _list(self.sources),
            "targets": _list(self.targets),
            "target_ids": _list(self.target_ids),
            "finding_ids": _list(self.finding_ids),
            "identities": _list(self.identities),
            "path": self.path,
            "scanner": self.scanner,
            "in_head": self.in_head,
            "since": self.since,
            "now": now,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRow:
    """A place as it is stored, with the scanners that report it."""

    path: str
    line: int | None
    column: int | None
    commit: str | None
    blob: str | None
    in_head: bool
    scanners: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageRow:
    """The last decision of a person; whether it still holds is told by the finding's status."""

    verdict: str
    by: str
    why: str
    at: datetime
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    """One finding with its first places (in the head first)."""

    id: int
    target_id: int
    source: str
    target: str
    display_name: str
    address: str
    identity: bytes
    rule: str
    rule_name: str
    severity: str
    confidence: str
    masked: str
    status: str
    life: str
    scanners: tuple[str, ...]
    seen_by: tuple[str, ...]
    place_count: int
    head_count: int
    unlisted_count: int
    first_commit: str | None
    first_seen_at: datetime
    last_seen_at: datetime
    fixed_at: datetime | None
    reopened_at: datetime | None
    triage: TriageRow | None
    ignored_why: str | None
    ignored_rule: int | None
    places: tuple[PlaceRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One thing that happened to a finding."""

    id: int
    at: datetime
    kind: str
    by: str
    why: str
    until: datetime | None
    lease_token: int | None


@dataclass(frozen=True, slots=True)
class PageMark:
    """Where the next page begins: after this severity and id."""

    severity: str
    id: int


def list_findings(
    conn: Connection[Any],
    wanted: FindingFilter,
    *,
    after: PageMark | None = None,
    limit: int = 100,
    places: int = 1,
    now: datetime | None = None,
) -> list[FindingRow]:
    """Give one page, the worst first and of those the newest; ``after`` is the mark of the last row seen."""
    parameters = {
        **wanted.parameters(now),
        "after_severity": severity_rank(after.severity) if after else None,
        "after_id": after.id if after else None,
        "limit": limit,
        "places": places,
    }
    with conn.cursor(row_factory=tuple_row) as cursor:
        # Never prepared: the filters decide which index is right, so each call is planned for its own.
        cursor.execute(statement(_SQL, "findings_list"), parameters, prepare=False)
        return [_row(row) for row in cursor]


def count_findings(
    conn: Connection[Any], wanted: FindingFilter, *, now: datetime | None = None
) -> Mapping[tuple[str, str], int]:
    """Count by (status, severity); the sum is the total."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement(_SQL, "findings_count"), wanted.parameters(now), prepare=False)
        return {(status, SEVERITIES[severity]): count for status, severity, count in cursor}


def get_finding(
    conn: Connection[Any], finding_id: int, *, places: int = 1_000, now: datetime | None = None
) -> FindingRow | None:
    """Give one finding whatever its status, with its places."""
    wanted = FindingFilter(statuses=None, finding_ids=(finding_id,))
    rows = list_findings(conn, wanted, limit=1, places=places, now=now)
    return rows[0] if rows else None


def find_by_prefix(conn: Connection[Any], prefix: str) -> list[int]:
    """Give the ids of at most ten findings whose identity, in hex, begins with ``prefix``."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement(_SQL, "findings_by_prefix"), {"prefix": prefix.lower()})
        return [row[0] for row in cursor]


def life(conn: Connection[Any], finding_id: int) -> list[EventRow]:
    """Give everything that happened to one finding, oldest first."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement(_SQL, "findings_life"), {"finding_id": finding_id})
        return [
            EventRow(id=row[0], at=row[1], kind=row[2], by=row[3], why=row[4], until=row[5], lease_token=row[6])
            for row in cursor
        ]


def stream_findings(
    conn: Connection[Any], wanted: FindingFilter, *, places: int = 100, now: datetime | None = None
) -> Iterator[FindingRow]:
    """Give every matching finding by source, target, rule and identity, in bounded memory.

    Needs an open transaction (a server-side cursor lives in one), whose time limits it lifts: all rows come from one
    moment.
    """
    conn.execute(statement(_SQL, "findings_unbounded"))
    with conn.cursor("resweep_findings", row_factory=tuple_row) as cursor:
        cursor.itersize = _FETCH
        cursor.execute(statement(_SQL, "findings_export"), {**wanted.parameters(now), "places": places})
        for row in cursor:
            yield _row(row)


def _list(values: Sequence[Any] | None) -> list[Any] | None:
    """Psycopg adapts lists to arrays, not tuples."""
    return list(values) if values is not None else None


def _row(row: tuple[Any, ...]) -> FindingRow:
    """Build a finding from a row of findings_list.sql or findings_export.sql."""
    triage = None
    if row[24] is not None:
        triage = TriageRow(verdict=row[24], by=row[25], why=row[26], at=row[27], until=row[28])
    return FindingRow(
        id=row[0],
        target_id=row[1],
        source=row[2],
        target=row[3],
        display_name=row[4],
        address=row[5],
        identity=bytes(row[6]),
        rule=row[7],
        rule_name=row[8],
        severity=SEVERITIES[int(row[9])],
        confidence=row[10],
        masked=row[11],
        status=row[12],
        life=row[13],
        scanners=tuple(row[14]),
        seen_by=tuple(row[15]),
        place_count=row[16],
        head_count=row[17],
        unlisted_count=row[18],
        first_commit=row[19],
        first_seen_at=row[20],
        last_seen_at=row[21],
        fixed_at=row[22],
        reopened_at=row[23],
        triage=triage,
        ignored_why=row[29],
        ignored_rule=row[30],
        places=tuple(
            PlaceRow(
                path=path,
                line=line,
                column=column,
                commit=commit,
                blob=blob,
                in_head=in_head,
                scanners=tuple(scanners),
            )
            for path, line, column, commit, blob, in_head, scanners in row[31] or ()
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a finding's identity was made over, and where its repository is."""

    kind: str
    provider_id: str | None
    name: str
    address: str


def origin(conn: Connection[Any], finding_id: int) -> Origin | None:
    """Give the origin of one finding."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement(_SQL, "findings_origin"), {"finding_id": finding_id})
        row = cursor.fetchone()
    return None if row is None else Origin(kind=row[0], provider_id=row[1], name=row[2], address=row[3])


def targets_named(
    conn: Connection[Any], names: Sequence[str], sources: Sequence[str] | None = None
) -> dict[str, list[int]]:
    """Give the target ids for each name (identity text or display name); a name that nothing has gets an empty list."""
    found: dict[str, list[int]] = {name: [] for name in names}
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement(_SQL, "findings_targets_named"), {"names": list(names), "sources": _list(sources)})
        for target_id, name, display_name in cursor:
            for each in {name, display_name} & found.keys():
                found[each].append(target_id)
    return found


def source_named(conn: Connection[Any], name: str) -> int | None:
    """Give the id of a source."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement(_SQL, "findings_source_named"), {"name": name})
        row = cursor.fetchone()
    return None if row is None else int(row[0])

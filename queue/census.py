"""Census: counts and listings for the eyes. Reads only, and nothing here decides about a row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..schema.records import Admission, State
from .statements import Conn, fetch, fetch_one


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCensus:
    """One source's targets by state, and what of them waits."""

    source_id: int
    source: str
    by_state: Mapping[State, int]
    claimable: int  # could be claimed now
    oldest_waiting: timedelta | None  # how long the oldest claimable target has been claimable
    changed_waiting: int
    oldest_deferral: timedelta | None  # how far back the oldest deferred row was due or put off


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which targets a listing shows; every part narrows it. ``name``: a part of the name, taken literally."""

    states: tuple[State, ...] = ()
    sources: tuple[int, ...] = ()
    error_code: str | None = None
    name: str | None = None
    admission: Admission | None = None
    changed: bool | None = None
    older_than: timedelta | None = None  # waiting since (not_before), or finished, at least this long ago


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One target as ``target_queue`` shows it."""

    target_id: int
    source: str
    kind: str
    name: str
    display_name: str
    state: State
    priority: int
    admission: Admission
    not_before: datetime
    attempts: int
    deferrals: int
    lease_owner: UUID | None
    lease_token: int
    lease_expires_at: datetime | None
    remote_modified_at: datetime | None
    scan_remote_modified_at: datetime | None
    scan_started_at: datetime | None
    completed_at: datetime | None
    requested_at: datetime | None
    request_owed: bool
    changed: bool
    changed_at: datetime | None
    reserved_by: str | None
    reserved_until: datetime | None
    deferred_reason: str | None
    retire_reason: str | None
    unresolved_reason: str | None
    last_error_code: str | None
    last_error: str | None
    last_error_at: datetime | None
    recheck_at: datetime | None
    address: str
    provider_id: str | None
    attributes: Mapping[str, object]
    former_names: tuple[str, ...]
    discovered_at: datetime
    source_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a listing; ``after`` is where the next one starts, ``None`` at the end."""

    rows: tuple[Row, ...]
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One claim that ended."""

    target_id: int
    lease_token: int
    worker: UUID
    claimed_at: datetime
    finished_at: datetime
    outcome: str
    admission: Admission
    result: str | None
    findings: int
    new_findings: int
    attempts: int
    error_code: str | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why one target is where it is and what happens to it next; codes from closed sets, words are the runner's."""

    row: Row
    code: str
    next_at: datetime | None  # the earliest time of the next step, when it is known
    ahead: int | None  # claimable targets of the same source before it (counted up to 10,000)
    history: tuple[Past, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """One lease that is held now."""

    target_id: int
    source: str
    name: str
    worker: UUID
    host: str | None
    pid: int | None
    lease_token: int
    started_at: datetime
    lease_expires_at: datetime
    attempts: int
    admission: Admission


@dataclass(frozen=True, slots=True, kw_only=True)
class Yield:
    """What claims of one admission class brought in a period (T59)."""

    source: str
    admission: Admission
    scans: int
    findings: int
    new_findings: int
    seconds: float


def counts(conn: Conn, *, now: datetime | None = None) -> list[SourceCensus]:
    """Every source's targets by state, by name; one read of the hot table."""
    return [
        SourceCensus(
            source_id=row[0],
            source=row[1],
            by_state={state: row[2].get(state.value, 0) for state in State},
            claimable=row[3],
            oldest_waiting=row[4],
            changed_waiting=row[5],
            oldest_deferral=row[6],
        )
        for row in fetch(conn, "census", {"now": now})
    ]


def listing(
    conn: Conn, wanted: Filter, *, after: int | None = None, limit: int = 100, now: datetime | None = None
) -> Page:
    """Targets by id, a page at a time (keyset: a page costs the same wherever it lies)."""
    rows = fetch(
        conn,
        "listing",
        {
            "states": [state.value for state in wanted.states] or None,
            "sources": list(wanted.sources) or None,
            "error_code": wanted.error_code,
            "name": wanted.name,
            "admission": wanted.admission.value if wanted.admission else None,
            "changed": wanted.changed,
            "older_than": wanted.older_than,
            "after": after or 0,
            "limit": limit + 1,
            "now": now,
        },
    )
    shown = tuple(_row(row) for row in rows[:limit])
    return Page(rows=shown, after=shown[-1].target_id if len(rows) > limit and shown else None)


def count_listing(conn: Conn, wanted: Filter, *, now: datetime | None = None) -> int:
    """How many targets a filter matches."""
    row = fetch_one(
        conn,
        "listing_count",
        {
            "states": [state.value for state in wanted.states] or None,
            "sources": list(wanted.sources) or None,
            "error_code": wanted.error_code,
            "name": wanted.name,
            "admission": wanted.admission.value if wanted.admission else None,
            "changed": wanted.changed,
            "older_than": wanted.older_than,
            "now": now,
        },
    )
    return 0 if row is None else int(row[0])


def find(conn: Conn, name: str, *, source_id: int | None = None) -> list[Row]:
    """Targets of this very name (normalized, shown, or former; the current one first), in one source or all."""
    return [_row(row) for row in fetch(conn, "find_target", {"name": name, "source_id": source_id})]


def get(conn: Conn, target_id: int) -> Row | None:
    """One target."""
    row = fetch_one(conn, "get_target", {"id": target_id})
    return None if row is None else _row(row)


def explain(conn: Conn, target_id: int, *, history_limit: int = 20, now: datetime | None = None) -> Why | None:
    """Why this target is where it is, and when it can be next."""
    row = get(conn, target_id)
    if row is None:
        return None
    facts = fetch_one(conn, "explain", {"id": target_id, "now": now})
    assert facts is not None  # noqa: S101 - the row was there a moment ago and rows stay for life
    return Why(
        row=row,
        code=facts[0],
        next_at=facts[1],
        ahead=facts[2],
        history=tuple(history(conn, target_id, limit=history_limit)),
    )


def history(conn: Conn, target_id: int, *, limit: int = 100, before: int | None = None) -> list[Past]:
    """A target's ended claims, the newest first; ``before`` a lease token for the next page."""
    return [
        Past(
            target_id=row[0],
            lease_token=row[1],
            worker=row[2],
            claimed_at=row[3],
            finished_at=row[4],
            outcome=row[5],
            admission=Admission(row[6]),
            result=row[7],
            findings=row[8],
            new_findings=row[9],
            attempts=row[10],
            error_code=row[11],
            error=row[12],
        )
        for row in fetch(conn, "history", {"id": target_id, "before": before, "limit": limit})
    ]


def in_flight(conn: Conn, *, limit: int = 1000) -> list[InFlight]:
    """The leases held now, the longest running first."""
    return [
        InFlight(
            target_id=row[0],
            source=row[1],
            name=row[2],
            worker=row[3],
            host=row[4],
            pid=row[5],
            lease_token=row[6],
            started_at=row[7],
            lease_expires_at=row[8],
            attempts=row[9],
            admission=Admission(row[10]),
        )
        for row in fetch(conn, "in_flight", {"limit": limit})
    ]


def yields(conn: Conn, *, period: timedelta, now: datetime | None = None) -> list[Yield]:
    """Scans and findings by source and admission class: what updated scans bring against new ones (T59)."""
    return [
        Yield(
            source=row[0],
            admission=Admission(row[1]),
            scans=row[2],
            findings=row[3],
            new_findings=row[4],
            seconds=row[5],
        )
        for row in fetch(conn, "yields", {"period": period, "now": now})
    ]


def cycles(
    conn: Conn, *, source_id: int | None = None, limit: int = 50, before: int | None = None
) -> list[dict[str, Any]]:
    """Discovery cycles with every column of ``source_cycles`` and the source's name, the newest first."""
    return [row[0] for row in fetch(conn, "cycle_list", {"source_id": source_id, "limit": limit, "before": before})]


def runs(conn: Conn, *, kind: str | None = None, limit: int = 50, before: int | None = None) -> list[dict[str, Any]]:
    """Other passes with every column of ``runs``, the newest first."""
    return [row[0] for row in fetch(conn, "run_list", {"kind": kind, "limit": limit, "before": before})]


def workers(
    conn: Conn, *, seen_within: timedelta = timedelta(minutes=5), now: datetime | None = None
) -> list[dict[str, Any]]:
    """Worker processes seen lately, with how many leases each holds."""
    return [row[0] for row in fetch(conn, "worker_list", {"within": seen_within, "now": now})]


def _row(row: tuple[Any, ...]) -> Row:
    return Row(
        target_id=row[0],
        source=row[1],
        kind=row[2],
        name=row[3],
        display_name=row[4],
        state=State(row[5]),
        priority=row[6],
        admission=Admission(row[7]),
        not_before=row[8],
        attempts=row[9],
        deferrals=row[10],
        lease_owner=row[11],
        lease_token=row[12],
        lease_expires_at=row[13],
        remote_modified_at=row[14],
        scan_remote_modified_at=row[15],
        scan_started_at=row[16],
        completed_at=row[17],
        requested_at=row[18],
        request_owed=row[19],
        changed=row[20],
        changed_at=row[21],
        reserved_by=row[22],
        reserved_until=row[23],
        deferred_reason=row[24],
        retire_reason=row[25],
        unresolved_reason=row[26],
        last_error_code=row[27],
        last_error=row[28],
        last_error_at=row[29],
        recheck_at=row[30],
        address=row[31],
        provider_id=row[32],
        attributes=row[33],
        former_names=tuple(row[34]),
        discovered_at=row[35],
        source_id=row[36],
    )

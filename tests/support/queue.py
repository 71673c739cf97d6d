"""Builders for the queue: sources, observations, claims; rows read plainly. Times are days of one month, handed in."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from psycopg import Connection
from psycopg.rows import dict_row, tuple_row

from resweep.queue.intake import observe
from resweep.queue.leases import claim
from resweep.queue.outcomes import complete
from resweep.queue.sources import register
from resweep.schema.records import Claim, Completion, Coverage, Observation, ScanOutcome, ScanReport, State, TimeState

Conn = Connection[Any]

WORKER = UUID("00000000-0000-4000-8000-000000000001")
OTHER = UUID("00000000-0000-4000-8000-000000000002")


def day(number: float) -> datetime:
    """The ``number``-th day of the month in which every test plays."""
    return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=number - 1)


def source(conn: Conn, name: str = "acme", kind: str = "huggingface", **settings: Any) -> int:
    """Register a source; of a kind that tells cases apart, unless said otherwise."""
    return register(conn, name=name, kind=kind, **settings)


def seen(
    name: str,
    at: datetime | None = None,
    *,
    provider_id: str | None = None,
    revision: bytes | None = None,
    word: TimeState | None = None,
    **attributes: object,
) -> Observation:
    """What a listing says of one target."""
    return Observation(
        name=name,
        display_name=name,
        address=f"https://example.org/{name}",
        provider_id=provider_id,
        remote_modified_at=at,
        time_state=word if word is not None else TimeState.VALID if at is not None else TimeState.MISSING,
        revision=revision,
        attributes=attributes,
    )


def admit(
    conn: Conn,
    source_id: int,
    names: Iterable[str] = ("a",),
    at: datetime | None = None,
    *,
    now: datetime | None = None,
) -> list[int]:
    """Observe targets for the first time; gives their ids in the order of the names."""
    wanted = list(names)
    observe(conn, source_id, [seen(name, at) for name in wanted], now=now)
    return [target_id(conn, name, source_id) for name in wanted]


def target_id(conn: Conn, name: str, source_id: int | None = None) -> int:
    """The id of the target of this name."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            "SELECT id FROM target WHERE normalized_target = %s AND (%s::int IS NULL OR source_id = %s)",
            (name, source_id, source_id),
        )
        found = cursor.fetchone()
    assert found is not None, name
    return int(found[0])


def row(conn: Conn, target: int | str) -> dict[str, Any]:
    """One target as ``target_queue`` shows it, by id or name."""
    with conn.cursor(row_factory=dict_row) as cursor:
        if isinstance(target, int):
            cursor.execute("SELECT * FROM target_queue WHERE id = %s", (target,))
        else:
            cursor.execute("SELECT * FROM target_queue WHERE normalized_target = %s", (target,))
        found = cursor.fetchone()
    assert found is not None, target
    return found


def state(conn: Conn, target: int | str) -> State:
    """A target's state."""
    return State(row(conn, target)["state"])


def take(
    conn: Conn, limit: int = 100, *, worker: UUID = WORKER, sources: Sequence[int] | None = None, **more: Any
) -> list[Claim]:
    """Claim."""
    return claim(conn, worker, sources=sources, limit=limit, **more)


def finish(conn: Conn, claims: Iterable[Claim], *, now: datetime | None = None, **more: Any) -> list[State | None]:
    """Complete claims without reports; gives the states afterwards, ``None`` for a lost lease."""
    handed = [Completion(target_id=each.target_id, lease_token=each.lease_token, reports=(), **more) for each in claims]
    return [each.state for each in complete(conn, handed, now=now)]


def scan(conn: Conn, target: int, *, now: datetime | None = None) -> None:
    """Claim everything that can be claimed, complete it; the target has to be among it."""
    claims = take(conn, now=now)
    assert target in {each.target_id for each in claims}
    finish(conn, claims, now=now)


def covered(
    scanner: str = "kingfisher", *, revision: bytes = b"r1", fingerprint: bytes = b"f1", tips: tuple[str, ...] = ()
) -> ScanReport:
    """A clean, complete report with coverage."""
    return ScanReport(
        scanner=scanner,
        outcome=ScanOutcome.CLEAN,
        complete=True,
        coverage=Coverage(scanner=scanner, revision=revision, fingerprint=fingerprint, tips=tips),
    )


def legacy(conn: Conn, source_id: int, name: str, completed_at: datetime) -> int:
    """A row from before the marks: done, with a completion time and nothing else."""
    (made,) = admit(conn, source_id, [name], now=completed_at)
    conn.execute("UPDATE target_hot SET state = 'done', completed_at = %s WHERE id = %s", (completed_at, made))
    return made


def versions(conn: Conn) -> list[tuple[Any, ...]]:
    """Where every row version of the queue lies: equal before and after means that nothing was written."""
    with conn.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            """
            SELECT 'hot' AS t, id, ctid::text, xmin::text FROM target_hot
            UNION ALL SELECT 'cold', id, ctid::text, xmin::text FROM target ORDER BY 1, 2
            """
        )
        return [tuple(each.values()) for each in cursor.fetchall()]


def new_worker() -> UUID:
    """A worker process's identity."""
    return uuid4()

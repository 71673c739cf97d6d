"""Sources in the queue: registered names, pauses by people, pauses by faults."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from .backoff import ceiling
from .statements import Conn, change, fetch, fetch_one

FOLDED_KINDS = frozenset({"github", "gitlab", "dockerhub"})
"""Kinds whose names are one name whatever their case; ``huggingface`` and ``git`` tell cases apart (queue.md)."""

FAULTS_BEFORE_PAUSE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One source as the queue knows it."""

    source_id: int
    name: str
    kind: str
    scope: str
    tenant: str
    ad_hoc: bool
    max_in_progress: int | None
    paused: bool  # nothing is claimed from it now
    paused_until: datetime | None
    pause_reason: str | None
    paused_by: str | None  # "faults", or who asked
    fault_streak: int
    last_fault_code: str | None
    last_fault: str | None
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultNoted:
    """What one more fault did to its source."""

    fault_streak: int
    paused_until: datetime | None  # set when the source is paused by its faults now


def fold(kind: str, name: str) -> str:
    """The normalized name under which ``name`` is compared in a source of this kind."""
    return name.casefold() if kind in FOLDED_KINDS else name


def register(  # noqa: PLR0913 - one argument a column
    conn: Conn,
    *,
    name: str,
    kind: str,
    scope: str = "",
    tenant: str = "default",
    ad_hoc: bool = False,
    max_in_progress: int | None = None,
    policy: str = "oldest_change",
) -> int:
    """Make the source known, or bring its settings up to date; writes nothing when they are. Returns its id.

    A name keeps its kind for life: another kind under the same name is a ``ValueError``, because every row's identity
    would change its meaning.
    """
    values = {
        "name": name,
        "kind": kind,
        "scope": scope,
        "tenant": tenant,
        "ad_hoc": ad_hoc,
        "max_in_progress": max_in_progress,
        "policy": policy,
    }
    for _ in range(3):
        row = fetch_one(conn, "source_find", values)
        if row is None:
            row = fetch_one(conn, "source_add", values)
            if row is None:  # another process added it just now: the next statement sees it
                continue
            return int(row[0])
        source_id, known_kind, same, policy_same = row
        if known_kind != kind:
            message = f"the source {name!r} is of kind {known_kind!r}, not {kind!r}: give the new one another name"
            raise ValueError(message)
        if not same:
            change(conn, "source_update", values | {"id": source_id})
        if not policy_same:
            change(conn, "source_reorder", {"id": source_id})
        return int(source_id)
    message = f"the source {name!r} appears and vanishes while it is being registered"
    raise RuntimeError(message)


def find(conn: Conn, name: str) -> int | None:
    """The id of the source called ``name``, or ``None``."""
    row = fetch_one(conn, "source_by_name", {"name": name})
    return None if row is None else int(row[0])


def list_sources(conn: Conn, *, now: datetime | None = None) -> list[SourceRow]:
    """Every source, by name."""
    return [
        SourceRow(
            source_id=row[0],
            name=row[1],
            kind=row[2],
            scope=row[3],
            tenant=row[4],
            ad_hoc=row[5],
            max_in_progress=row[6],
            paused=row[7],
            paused_until=row[8],
            pause_reason=row[9],
            paused_by=row[10],
            fault_streak=row[11],
            last_fault_code=row[12],
            last_fault=row[13],
            policy=row[14],
        )
        for row in fetch(conn, "source_list", {"now": now})
    ]


def pause(conn: Conn, source_id: int, *, reason: str, by: str = "operator", until: datetime | None = None) -> bool:
    """Hand nothing out from this source until ``until``, or until ``resume``. False when there is no such source."""
    return change(conn, "source_pause", {"id": source_id, "reason": reason, "by": by, "until": until}) == 1


def resume(conn: Conn, source_id: int) -> bool:
    """Lift any pause and forget the faults. False when nothing was paused."""
    return change(conn, "source_resume", {"id": source_id}) == 1


def note_fault(
    conn: Conn, source_id: int, *, code: str = "connect", message: str = "", now: datetime | None = None
) -> FaultNoted:
    """Count a fault of the provider or the network; the third in a row pauses the source (queue.md, "Claiming").

    The pause grows from 30 s, doubling to 1 h. When it is over, one claim every half minute is the probe;
    ``note_success`` lifts the pause. A person's pause is never shortened or lifted here.
    """
    waits = [ceiling(n) for n in range(1, 9)]
    row = fetch_one(
        conn,
        "source_fault",
        {
            "id": source_id,
            "code": code,
            "message": message[:2000],
            "threshold": FAULTS_BEFORE_PAUSE,
            "waits": [wait / timedelta(seconds=1) for wait in waits],
            "now": now,
        },
    )
    if row is None:
        message = f"there is no source {source_id}"
        raise LookupError(message)
    return FaultNoted(fault_streak=row[0], paused_until=row[1])


def note_success(conn: Conn, source_id: int) -> bool:
    """The provider answered: forget the faults, lift the pause they caused. Writes nothing when there were none."""
    return change(conn, "source_success", {"id": source_id}) == 1


def due_probes(conn: Conn, *, now: datetime | None = None) -> list[int]:
    """Sources paused by faults whose pause is over: whoever can ask the provider cheaply should probe them."""
    return [row[0] for row in fetch(conn, "source_due_probes", {"now": now})]

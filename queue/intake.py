"""Intake: observe what a source lists, and admit what changed under a hard cap.

An observation says that a target exists and perhaps when it changed; it never removes anything (T02). An unchanged
known target writes nothing (queue.md, "Observe and requeue under a hard cap").
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ..schema.records import Observation, ObserveCounts, TimeState
from .arrays import blobs, flags, ints, texts, times
from .cycles import fence
from .renames import rename
from .sources import FOLDED_KINDS
from .statements import Conn, change, fetch, fetch_one, together
from .wakeups import announce

MAX_FUTURE_SKEW = timedelta(minutes=10)
COOLDOWN = timedelta(hours=6)
_ROUNDS = 5


def observe(  # noqa: PLR0913 - the signature of queue.md, plus what a test hands in
    conn: Conn,
    source_id: int,
    observations: Sequence[Observation],
    *,
    admit: bool = True,
    max_future_skew: timedelta = MAX_FUTURE_SKEW,
    cycle_id: int | None = None,
    remember: bool = False,
    now: datetime | None = None,
) -> ObserveCounts:
    """Take one step's records in (up to some thousand); the caller's transaction is the step.

    ``admit=False`` moves the times of known targets and admits nothing (``backlog_first = observe``). With ``cycle_id``
    the cycle is fenced first (``CycleFenced``). ``remember`` notes who was seen, for a complete listing
    (``removal.begin``).
    Names are folded by the source's kind here; records of one target are taken as one. Counts are of distinct
    targets, ``fetched_count`` of records.
    """
    with together(conn):
        if cycle_id is not None:
            fence(conn, cycle_id)
        row = fetch_one(conn, "source_kind", {"id": source_id})
        if row is None:
            message = f"there is no source {source_id}: register it before observing it"
            raise LookupError(message)
        records = distinct(observations, folded=row[0] in FOLDED_KINDS)
        counts = ObserveCounts(fetched_count=len(observations))
        left = records
        for turn in range(_ROUNDS):
            if not left:
                break
            counts, left = _turn(
                conn, source_id, left, counts, first=turn == 0, admit=admit, skew=max_future_skew, now=now
            )
        if remember and records:
            change(conn, "walk_seen_add", {"source_id": source_id, "names": [record.name for record in records]})
        if counts.queued_new_count:
            announce(conn)
        return counts


def distinct(observations: Sequence[Observation], *, folded: bool) -> list[Observation]:
    """One record a target: by id and by name; the newest valid time wins, else the first record.

    ``folded`` folds the names first.
    """
    if folded:
        observations = [
            record if (name := record.name.casefold()) == record.name else replace(record, name=name)
            for record in observations
        ]
    names = {record.name for record in observations}
    ids = [record.provider_id for record in observations if record.provider_id]
    if len(names) == len(observations) and len(set(ids)) == len(ids):
        return list(observations)
    # Newest first (a record without a valid time last), stable: then the first taker of a name or an id keeps it.
    order = sorted(range(len(observations)), key=lambda index: _age(observations[index]))
    taken_names: set[str] = set()
    taken_ids: set[str] = set()
    kept: list[int] = []
    for index in order:
        record = observations[index]
        if record.name in taken_names or (record.provider_id and record.provider_id in taken_ids):
            continue
        taken_names.add(record.name)
        if record.provider_id:
            taken_ids.add(record.provider_id)
        kept.append(index)
    return [observations[index] for index in sorted(kept)]


def _age(record: Observation) -> float:
    time = record.remote_modified_at
    valid = record.time_state is TimeState.VALID and time is not None and time.tzinfo is not None
    return -time.timestamp() if valid and time is not None else float("inf")


def _columns(records: Sequence[Observation]) -> dict[str, object]:
    """The records as the statements take them: one array literal a column."""
    words: list[str] = []
    moments: list[datetime | None] = []
    for record in records:
        word, time = record.time_state, record.remote_modified_at
        # A time without an offset is malformed, whatever the adapter says of it (T10).
        if word is TimeState.VALID and (time is None or time.tzinfo is None):
            word = TimeState.MISSING if time is None else TimeState.INVALID
        words.append(word.value)
        moments.append(time if word is TimeState.VALID else None)
    digest = TimeState.MISSING.value
    return {
        "names": texts([record.name for record in records]),
        "provider_ids": texts([record.provider_id or "" for record in records]),
        "display_names": texts([record.display_name for record in records]),
        "addresses": texts([record.address for record in records]),
        "attributes": texts(_attributes(records)),
        "revisions": blobs([record.revision for record in records]),
        "times": times(moments),
        "words": texts(words),
        "digests": flags(
            [word == digest and record.revision is not None for word, record in zip(words, records, strict=True)]
        ),
    }


def _attributes(records: Sequence[Observation]) -> list[str]:
    """Attributes as JSON; a page has few distinct ones, so each is written once."""
    written: dict[object, str] = {}
    column: list[str] = []
    for record in records:
        attributes = record.attributes
        if not attributes:
            column.append("{}")
            continue
        key: object = tuple(attributes.items())
        try:
            text = written.get(key)
        except TypeError:  # a list among the values
            text, key = None, None
        if text is None:
            text = json.dumps(dict(attributes), sort_keys=True)
            if key is not None:
                written[key] = text
        column.append(text)
    return column


def _turn(  # noqa: PLR0913 - one turn of observe
    conn: Conn,
    source_id: int,
    records: Sequence[Observation],
    counts: ObserveCounts,
    *,
    first: bool,
    admit: bool,
    skew: timedelta,
    now: datetime | None,
) -> tuple[ObserveCounts, list[Observation]]:
    """Classify, write; gives the records that have to be looked at again (renamed, or inserted by another process)."""
    common: dict[str, object] = {"source_id": source_id, "skew": skew, "admit": admit, "now": now}
    columns = _columns(records)
    total, *rows = fetch(conn, "observe_classify", columns | common)
    if first:
        counts = replace(
            counts,
            known_count=total[5],
            missing_timestamp_count=total[6],
            invalid_timestamp_count=total[7],
            older_timestamp_count=total[8],
        )
    by_act: dict[str, list[tuple[Observation, int | None, int | None, bool]]] = {}
    for ordinal, act, target_id, holder_id, cold, *_ in rows:
        by_act.setdefault(str(act), []).append((records[int(ordinal) - 1], target_id, holder_id, cold))
    if admit and (new := [record for record, _, _, _ in by_act.get("new", ())]):
        # Before any row is locked: an insert waits for another process that inserts the same name, and that one may be
        # waiting for a row of ours. Everything else of the page is looked at again afterwards, and locked once.
        added = _insert(conn, new, common)
        counts = replace(counts, queued_new_count=counts.queued_new_count + len(added))
        rest = [record for act in ("rename", "write") for record, _, _, _ in by_act.get(act, ())]
        return counts, [*rest, *(record for record in new if record.name not in added)]
    again: list[Observation] = []
    renames, writes = by_act.get("rename", []), by_act.get("write", [])
    if renames:
        # Together with the rows that are written below, so that all are locked in the one order.
        touched = {one for _, found, holder, _ in [*renames, *writes] for one in (found, holder) if one is not None}
        fetch(conn, "lock_targets", {"ids": sorted(touched)})
        renamed = rename(conn, source_id, [(record, found, holder) for record, found, holder, _ in renames], now=now)
        counts = replace(counts, renamed_count=counts.renamed_count + renamed)
        again += [record for record, _, _, _ in renames]
    if writes:
        moved = _write(conn, [(record, found, cold) for record, found, _, cold in writes if found is not None], common)
        counts = replace(counts, moved_count=counts.moved_count + moved)
    return counts, again


def _insert(conn: Conn, new: Sequence[Observation], common: dict[str, object]) -> set[str]:
    """Admit new targets; gives the names that were inserted here and not by another process just now."""
    columns = _columns(new)
    ids = {name: target_id for target_id, name in fetch(conn, "observe_insert", columns | common)}
    added = [record for record in new if record.name in ids]
    if len(added) < len(new):
        columns = _columns(added)
    if added:
        change(conn, "observe_admit", columns | common | {"ids": ints([ids[record.name] for record in added])})
    return set(ids)


def _write(conn: Conn, writes: Sequence[tuple[Observation, int, bool]], common: dict[str, object]) -> int:
    """Write what moved; gives how many targets' times went forward."""
    ids = [target_id for _, target_id, _ in writes]
    fetch(conn, "lock_targets", {"ids": ids})
    moved = fetch(conn, "observe_update", _columns([record for record, _, _ in writes]) | common | {"ids": ints(ids)})
    back = {row[0] for row in moved if row[2]}
    cold = [(record, target_id) for record, target_id, redressed in writes if redressed or target_id in back]
    if cold:
        values = _columns([record for record, _ in cold]) | common | {"ids": ints([target_id for _, target_id in cold])}
        change(conn, "observe_redress", values)
    if any(row[3] == "pending" for row in moved if row[2]):
        announce(conn)
    return sum(1 for row in moved if row[1])


def requeue_changed(
    conn: Conn, source_id: int, *, limit: int, cooldown: timedelta = COOLDOWN, now: datetime | None = None
) -> int:
    """Admit up to ``limit`` changed targets of one source again; gives how many.

    ``limit`` is what is left of the cycle's cap (0 admits nothing; negative is taken as 0). Runs in the transaction
    that observed, after the cycle's fence (T32, T33).
    """
    if limit < 1:
        return 0
    queued = change(conn, "requeue_changed", {"source_id": source_id, "limit": limit, "cooldown": cooldown, "now": now})
    if queued:
        announce(conn)
    return queued


def count_changed_waiting(
    conn: Conn, source_id: int, *, cooldown: timedelta | None = None, now: datetime | None = None
) -> int:
    """Changed targets that wait for the cap; with ``cooldown`` only those that could be admitted now."""
    row = fetch_one(conn, "changed_waiting", {"source_id": source_id, "cooldown": cooldown, "now": now})
    return 0 if row is None else int(row[0])

"""Renames: a known id under a new name keeps its row; names may be swapped or taken over inside one page."""

from collections.abc import Sequence
from datetime import datetime

from ..schema.records import Observation
from .statements import Conn, change, fetch


def rename(
    conn: Conn,
    source_id: int,
    found: Sequence[tuple[Observation, int | None, int | None]],
    *,
    now: datetime | None = None,
) -> int:
    """Give names to whom they belong now; returns how many rows got the name they were observed under.

    ``found`` are records with the row that has their id (``None``: a new target wants the name) and the row that has
    their name. A row that loses its name and gets no other one here becomes ``name@id:PROVIDER_ID`` and ``unresolved``
    in this transaction. Every affected row is first moved aside, then named (queue.md, "One row per target").
    """
    wanted = {row_id: record.name for record, row_id, _ in found if row_id is not None}
    affected = sorted(wanted.keys() | {holder for _, _, holder in found if holder is not None})
    if not affected:
        return 0
    states = dict(fetch(conn, "lock_targets", {"ids": affected}))
    names: list[tuple[int, str, str, bool]] = []
    for row_id, name, provider_id in fetch(conn, "rename_read", {"ids": affected}):
        if row_id in wanted:
            names.append((row_id, wanted[row_id], name, False))
        elif any(record.name == name for record, _, _ in found):
            names.append((row_id, f"{name}@id:{provider_id or f'row-{row_id}'}", name, True))
    # Someone else may have taken a name since the page was compared: those are looked at in the next turn.
    free = _still_free(conn, source_id, names)
    names = [item for item in names if item[1] in free]
    ids = [item[0] for item in names]
    if not ids:
        return 0
    change(conn, "rename_aside", {"ids": ids})
    lost = [item[3] for item in names]
    settled = fetch(conn, "rename_settled", {"ids": ids})
    change(
        conn,
        "rename_set",
        {"ids": ids, "names": [item[1] for item in names], "formers": [item[2] for item in names], "lost": lost},
    )
    if any(lost) or any(states.get(row_id) == "unresolved" for row_id in ids):
        values = {"ids": ids, "lost": lost, "settled": [row[0] for row in settled], "now": now}
        change(conn, "rename_states", values)
    return len(ids) - sum(lost)


def _still_free(conn: Conn, source_id: int, names: Sequence[tuple[int, str, str, bool]]) -> set[str]:
    """The wanted names that no row outside this batch holds."""
    rows = fetch(
        conn,
        "rename_holders",
        {"source_id": source_id, "names": [item[1] for item in names], "ids": [item[0] for item in names]},
    )
    return {item[1] for item in names} - {row[0] for row in rows}

"""Store what completed scans found: part of the transaction that completes them.

What happens to each finding is decided in ``findings_model``; here it is read and written, for a whole batch of
completions in a fixed number of statements. An unchanged rescan costs two reads and writes nothing; a batch in which
no report tells anything (``unchanged``, ``failed``) costs no statement.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import tuple_row

from ..schema.database import statement
from ..schema.records import Completion
from .findings_model import Draft, FindingCounts, Label, decide, tells

RULES_LOCK_SPACE: Final = 0x72730002
"""Advisory lock space of the ignore rules: shared by whoever stores findings, exclusive while a rule is added."""

_SQL: Final = "resweep.queue.sql"


def store(
    conn: Connection[Any], completions: Sequence[Completion], *, now: datetime | None = None
) -> dict[int, FindingCounts]:
    """Bring the findings of completed targets up to date; gives the counts by target id.

    Runs in the caller's transaction, which holds the row of every target of the batch and has accepted each
    completion (a completion handed in again is refused there, so nothing is counted twice). A target appears at most
    once. Locks: target, then findings in id order. ``now`` is None in production: the database's time.
    """
    counts = {completion.target_id: FindingCounts() for completion in completions}
    telling = [each for each in completions if any(tells(report) for report in each.reports)]
    if not telling:
        return counts
    known = _known(conn, telling, now)
    drafts: list[Draft] = []
    tokens: dict[int, int] = {}
    for completion in telling:
        target_id = completion.target_id
        decided, counts[target_id] = decide(target_id, completion.reports, known.get(target_id, {}))
        drafts += [draft for draft in decided if draft.life is not None and (draft.touched or draft.finding_id is None)]
        tokens[target_id] = completion.lease_token
    if not drafts:
        return counts
    _execute(conn, "findings_hold_rules", {"space": RULES_LOCK_SPACE})
    drafts.sort(key=lambda draft: (draft.target_id, draft.identity))
    _write_findings(conn, drafts, now)
    _write_places(conn, drafts)
    _note(conn, drafts, tokens, {each.target_id: each for each in telling}, now)
    for draft in _reconsider(conn, drafts, now):
        if draft.standing() and not draft.triaged:
            old = counts[draft.target_id]
            step = -1 if draft.ignored else 1
            counts[draft.target_id] = replace(old, open_count=(old.open_count or 0) + step)
    return counts


def purge(conn: Connection[Any], target_ids: Sequence[int]) -> int:
    """Remove all that is known of the findings of targets that the caller removes; gives how many they were."""
    with conn.cursor() as cursor:
        cursor.execute(statement(_SQL, "findings_purge"), {"target_ids": sorted(set(target_ids))})
        return cursor.rowcount


def _known(conn: Connection[Any], telling: Sequence[Completion], now: datetime | None) -> dict[int, dict[bytes, Draft]]:
    """Read what is stored of the targets: by target id, by identity."""
    reported = {
        (each.target_id, finding.identity)
        for each in telling
        for report in each.reports
        if tells(report)
        for finding in report.findings
    }
    pairs = sorted(reported)
    rows = _execute(
        conn,
        "findings_known",
        {
            "target_ids": sorted({each.target_id for each in telling}),
            "reported_target_ids": [pair[0] for pair in pairs],
            "reported_identities": [pair[1] for pair in pairs],
            "now": now,
        },
    )
    by_target: dict[int, dict[bytes, Draft]] = {}
    by_id: dict[int, Draft] = {}
    for row in rows:
        draft = Draft(
            finding_id=row[0],
            target_id=row[1],
            identity=bytes(row[2]),
            rule=row[3],
            label=Label(rule_name=row[4], severity=row[5], confidence=row[6], masked=row[7]),
            life=row[8],
            scanners=frozenset(row[9]),
            seen_by=frozenset(row[10]),
            unlisted=row[11],
            first_commit=row[12],
            triaged=row[13],
            ignored=row[14],
        )
        by_target.setdefault(draft.target_id, {})[draft.identity] = draft
        by_id[row[0]] = draft
    if by_id:
        for finding_id, scanner, key, in_head in _execute(conn, "findings_known_places", {"finding_ids": list(by_id)}):
            by_id[finding_id].head[(scanner, key)] = in_head
    return by_target


def _write_findings(conn: Connection[Any], drafts: Sequence[Draft], now: datetime | None) -> None:
    """Insert what is new (which gives each its id) and change what is known."""
    new = [draft for draft in drafts if draft.finding_id is None]
    old = sorted((draft for draft in drafts if draft.finding_id is not None), key=lambda draft: draft.finding_id or 0)
    if new:
        rows = _execute(
            conn,
            "findings_insert",
            {
                "target_ids": [draft.target_id for draft in new],
                "identities": [draft.identity for draft in new],
                "rules": [draft.rule for draft in new],
                **_columns(new),
                "now": now,
            },
        )
        ids = {(target_id, bytes(identity)): finding_id for finding_id, target_id, identity in rows}
        for draft in new:
            draft.finding_id = ids[draft.target_id, draft.identity]
    if old:
        _execute(
            conn,
            "findings_change",
            {
                "finding_ids": [draft.finding_id for draft in old],
                "lives": [draft.life for draft in old],
                "scanners": [_array(draft.scanners) for draft in old],
                **_columns(old),
                "now": now,
            },
        )


def _columns(drafts: Sequence[Draft]) -> dict[str, list[Any]]:
    """The columns that inserts and changes share, as arrays."""
    return {
        "rule_names": [draft.label.rule_name for draft in drafts],
        "severities": [draft.label.severity for draft in drafts],
        "confidences": [draft.label.confidence for draft in drafts],
        "maskeds": [draft.label.masked for draft in drafts],
        "seen_by": [_array(draft.seen_by) for draft in drafts],
        "place_counts": [len(draft.head) for draft in drafts],
        "head_counts": [sum(draft.head.values()) for draft in drafts],
        "unlisted_counts": [draft.unlisted for draft in drafts],
        "first_commits": [draft.first_commit for draft in drafts],
    }


def _write_places(conn: Connection[Any], drafts: Sequence[Draft]) -> None:
    """Remove the places that are gone, add those that are new, turn those that changed."""
    dropped = [(draft.finding_id, key) for draft in drafts for key in sorted(draft.dropped)]
    if dropped:
        _execute(
            conn,
            "findings_drop_places",
            {
                "finding_ids": [finding_id for finding_id, _ in dropped],
                "scanners": [key[0] for _, key in dropped],
                "keys": [key[1] for _, key in dropped],
            },
        )
    added = [(draft.finding_id, key, place) for draft in drafts for key, place in draft.added.items()]
    if added:
        _execute(
            conn,
            "findings_add_places",
            {
                "finding_ids": [finding_id for finding_id, _, _ in added],
                "scanners": [key[0] for _, key, _ in added],
                "keys": [key[1] for _, key, _ in added],
                "paths": [place.path for _, _, place in added],
                "lines": [place.line for _, _, place in added],
                "columns": [place.column for _, _, place in added],
                "commits": [place.commit for _, _, place in added],
                "blobs": [place.blob for _, _, place in added],
                "in_heads": [place.in_head for _, _, place in added],
                "marks": [place.mark for _, _, place in added],
            },
        )


def _note(
    conn: Connection[Any],
    drafts: Sequence[Draft],
    tokens: dict[int, int],
    completions: dict[int, Completion],
    now: datetime | None,
) -> None:
    """Append to the life of every finding that was opened, fixed or reopened."""
    events = [draft for draft in drafts if draft.event is not None]
    if not events:
        return
    by = {
        target_id: ", ".join(sorted({report.scanner for report in completion.reports if tells(report)}))
        for target_id, completion in completions.items()
    }
    _execute(
        conn,
        "findings_note",
        {
            "finding_ids": [draft.finding_id for draft in events],
            "kinds": [draft.event for draft in events],
            "by": [_actors(draft, by[draft.target_id]) for draft in events],
            "lease_tokens": [tokens[draft.target_id] for draft in events],
            "now": now,
        },
    )


def _actors(draft: Draft, everybody: str) -> str:
    """Which scanners did it: those that see it now, or those that no longer do."""
    return ", ".join(sorted(draft.lost if draft.event == "fixed" else draft.seen_by)) or everybody


def _reconsider(conn: Connection[Any], drafts: Sequence[Draft], now: datetime | None) -> list[Draft]:
    """Apply the ignore rules to what was written; gives the drafts whose visibility that changed."""
    by_id = {draft.finding_id: draft for draft in drafts}
    rows = _execute(conn, "findings_reconsider", {"finding_ids": sorted(id_ for id_ in by_id if id_), "now": now})
    turned: list[Draft] = []
    for finding_id, ignored in rows:
        draft = by_id[finding_id]
        if draft.ignored != ignored:
            draft.ignored = ignored
            turned.append(draft)
    return turned


def _array(names: Iterable[str]) -> str:
    """Write names as a PostgreSQL array literal, sorted: an array of arrays of different lengths cannot be sent."""
    quoted = ('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in sorted(names))
    return "{" + ",".join(quoted) + "}"


def _execute(conn: Connection[Any], name: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Run one statement file; gives its rows, if it has any."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement(_SQL, name), parameters)
        return cursor.fetchall() if cursor.description is not None else []

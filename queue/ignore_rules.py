"""What is to be ignored: path patterns and identities, each with a reason, everywhere or for a source or a target.

What is ignored is recorded as ignored with its reason, never dropped. Adding or removing a rule is one short
transaction; applying it to what is stored follows in batches (``apply``), which may be repeated after a crash.
Nothing slips through between: whoever stores findings meanwhile either waits for the rule or is waited for.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from psycopg import Connection
from psycopg.rows import class_row, tuple_row

from ..schema.database import statement
from ..schema.errors import UsageFault
from ..schema.text import store_text
from .findings import RULES_LOCK_SPACE
from .findings_paths import parse

_SQL: Final = "resweep.queue.sql"
_HEX_DIGITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreRule:
    """One rule as it is stored."""

    id: int
    kind: str
    pattern: str
    source: str | None
    target_id: int | None
    reason: str
    created_by: str
    created_at: datetime
    removed_by: str | None
    removed_at: datetime | None
    ignored_count: int  # findings that it hides now


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """How far a rule has been applied."""

    last_id: int  # go on after this finding
    looked_at: int
    changed: int
    finished: bool


def add(  # noqa: PLR0913 - one argument a column
    conn: Connection[Any],
    *,
    kind: Literal["path", "identity"],
    pattern: str,
    reason: str,
    by: str,
    source_id: int | None = None,
    target_id: int | None = None,
    now: datetime | None = None,
) -> int:
    """Add a rule and give its id; the same living rule again gives the id it has. Call ``apply`` afterwards.

    Raises ``UsageFault`` for a pattern that cannot be one, two scopes, or a missing reason.
    """
    if not reason.strip() or not by.strip():
        message = "an ignore rule needs a reason and a name; give --why TEXT and --who NAME"
        raise UsageFault(message)
    if source_id is not None and target_id is not None:
        message = "an ignore rule holds for a source or for a target, not for both; give one of --source and --target"
        raise UsageFault(message)
    identity = _identity(pattern) if kind == "identity" else None
    regex = parse(pattern).regex() if kind == "path" else None
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(
            statement(_SQL, "findings_add_rule"),
            {
                "kind": kind,
                "pattern": store_text(pattern.lower() if kind == "identity" else pattern, limit=4_096),
                "regex": regex,
                "identity": identity,
                "source_id": source_id,
                "target_id": target_id,
                "reason": store_text(reason.strip(), limit=4_096),
                "by": store_text(by.strip(), limit=255),
                "now": now,
            },
        )
        row = cursor.fetchone()
        # Only now: completions that stored without the rule are waited for, those that come after see it.
        cursor.execute(statement(_SQL, "findings_own_rules"), {"space": RULES_LOCK_SPACE})
    if row is None:
        message = "the ignore rule was added or removed by somebody else at this moment; ask again"
        raise UsageFault(message)
    return int(row[0])


def remove(conn: Connection[Any], rule_id: int, *, by: str, now: datetime | None = None) -> bool:
    """End a rule; gives False when it is not a living one. Call ``apply`` afterwards."""
    if not by.strip():
        message = "ending an ignore rule is recorded with a name; give --who NAME"
        raise UsageFault(message)
    with conn.cursor() as cursor:
        cursor.execute(
            statement(_SQL, "findings_remove_rule"),
            {"rule_id": rule_id, "by": store_text(by.strip(), limit=255), "now": now},
        )
        ended = cursor.rowcount == 1
        cursor.execute(statement(_SQL, "findings_own_rules"), {"space": RULES_LOCK_SPACE})
    return ended


def apply(
    conn: Connection[Any], rule_id: int, *, after_id: int = 0, limit: int = 1_000, now: datetime | None = None
) -> Applied:
    """Bring one batch of the findings in a rule's scope in line with all rules; repeat until ``finished``."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement(_SQL, "findings_in_scope"), {"rule_id": rule_id, "after_id": after_id, "limit": limit})
        ids = [row[0] for row in cursor]
        if not ids:
            return Applied(last_id=after_id, looked_at=0, changed=0, finished=True)
        cursor.execute(statement(_SQL, "findings_reconsider"), {"finding_ids": ids, "now": now})
        return Applied(last_id=ids[-1], looked_at=len(ids), changed=cursor.rowcount, finished=len(ids) < limit)


def list_rules(conn: Connection[Any], *, removed: bool = False) -> list[IgnoreRule]:
    """Give the living rules in order of their ids, on request also those that were ended."""
    with conn.cursor(row_factory=class_row(IgnoreRule)) as cursor:
        cursor.execute(statement(_SQL, "findings_rules"), {"removed": removed})
        return cursor.fetchall()


def _identity(text: str) -> bytes:
    """Read an identity as lists and exports show it."""
    try:
        identity = bytes.fromhex(text.strip())
    except ValueError:
        identity = b""
    if len(identity) * 2 != _HEX_DIGITS or len(text.strip()) != _HEX_DIGITS:
        message = f"{text[:80]!r} is no finding identity: 64 hex digits, as `findings show` prints them"
        raise UsageFault(message)
    return identity

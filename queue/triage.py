"""What people decide about findings: accepted or false positive, by whom, why and until when.

A decision sticks to the finding through fixes and reopenings. When its time is over the finding is open again by the
database's clock alone (``finding_status``); ``expire`` only writes that into its life, for the eyes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import tuple_row

from ..schema.database import statement
from ..schema.errors import UsageFault
from ..schema.text import store_text

_SQL: Final = "resweep.queue.sql"
_WHY_LIMIT: Final = 4_096
_WHO_LIMIT: Final = 255


class Verdict(StrEnum):
    """What a person may say of a finding; ``OPEN`` takes an earlier verdict back."""

    ACCEPTED = "accepted"
    FALSE_POSITIVE = "false_positive"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision, for one or many findings."""

    verdict: Verdict
    by: str
    why: str = ""
    until: datetime | None = None

    def check(self) -> None:
        """Raise ``UsageFault`` when who or why is missing, or the end makes no sense."""
        if not self.by.strip():
            message = "a triage needs to know who decided; give --who NAME"
            raise UsageFault(message)
        if self.verdict is not Verdict.OPEN and not self.why.strip():
            message = f"a finding is marked {self.verdict.value} for a reason; give --why TEXT"
            raise UsageFault(message)
        if self.verdict is Verdict.OPEN and self.until is not None:
            message = "an end (--until) belongs to --accept or --false-positive: an open finding has none"
            raise UsageFault(message)
        if self.until is not None and self.until.tzinfo is None:
            message = f"the end {self.until.isoformat()} has no time zone; write it as 2027-01-31T00:00:00Z"
            raise UsageFault(message)


def decide(
    conn: Connection[Any], finding_ids: Sequence[int], decision: Decision, *, now: datetime | None = None
) -> list[int]:
    """Record a decision on findings; gives the ids of those that it changed, in order.

    The same decision again changes nothing and writes nothing. Raises ``UsageFault`` for an end that is not ahead of
    the database's clock. Locks findings in id order, and nothing else.
    """
    decision.check()
    with conn.cursor(row_factory=tuple_row) as cursor:
        if decision.until is not None:
            cursor.execute(statement(_SQL, "triage_end_ahead"), {"until": decision.until, "now": now})
            row = cursor.fetchone()
            if row is None or not row[0]:
                message = (
                    f"the end {decision.until.isoformat()} is not ahead of the database's clock; give a later --until"
                )
                raise UsageFault(message)
        cursor.execute(
            statement(_SQL, "triage_decide"),
            {
                "finding_ids": sorted(set(finding_ids)),
                "verdict": None if decision.verdict is Verdict.OPEN else decision.verdict.value,
                "by": store_text(decision.by.strip(), limit=_WHO_LIMIT),
                "why": store_text(decision.why.strip(), limit=_WHY_LIMIT),
                "until": decision.until,
                "now": now,
            },
        )
        return [row[0] for row in cursor]


def expire(conn: Connection[Any], *, limit: int = 1_000, now: datetime | None = None) -> int:
    """Write the end of triages whose time is over into the life of their findings; gives how many.

    Nothing depends on it: such findings are open already.
    """
    with conn.cursor() as cursor:
        cursor.execute(statement(_SQL, "triage_expire"), {"limit": limit, "now": now})
        return cursor.rowcount


def note_reveal(conn: Connection[Any], finding_id: int, *, by: str, why: str, now: datetime | None = None) -> None:
    """Record that a secret is about to be shown to somebody; committed by the caller before it is."""
    if not by.strip():
        message = "showing a secret is recorded with a name; give --who NAME"
        raise UsageFault(message)
    with conn.cursor() as cursor:
        cursor.execute(
            statement(_SQL, "triage_note_reveal"),
            {
                "finding_id": finding_id,
                "by": store_text(by.strip(), limit=_WHO_LIMIT),
                "why": store_text(why.strip(), limit=_WHY_LIMIT),
                "now": now,
            },
        )

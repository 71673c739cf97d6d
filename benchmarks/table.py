"""Fills the product's tables fast, and makes the observations that belong to them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from resweep.schema.records import Observation, TimeState

_SQL = Path(__file__).parent / "sql"
_CHUNK = 1_000_000
UNCHANGED = datetime(2024, 3, 1, tzinfo=UTC)
"""The provider's time of every target that ``fill`` makes, but for those that have changed since."""


@cache
def text(name: str) -> bytes:
    """One statement of ``benchmarks/sql``."""
    return (_SQL / f"{name}.sql").read_bytes()


def fill(
    conn: psycopg.Connection[Any], *, source_id: int, first: int, count: int, state: str, changed_every: int = 0
) -> None:
    """Add ``count`` targets with ids from ``first`` on, ``waiting`` or ``done``; ``conn`` is in autocommit."""
    for start in range(first, first + count, _CHUNK):
        values = {
            "source_id": source_id,
            "first": start,
            "count": min(_CHUNK, first + count - start),
            "changed_every": changed_every,
        }
        conn.execute(text("fill_identity"), values)
        conn.execute(text(f"fill_{state}"), values)
    top = first + count
    conn.execute(
        "SELECT setval(pg_get_serial_sequence('target', 'id'), greatest(%s, (SELECT max(id) FROM target)))", (top,)
    )


def tidy(conn: psycopg.Connection[Any]) -> None:
    """Statistics and visibility as autovacuum leaves them some minutes after a change."""
    conn.execute("VACUUM (ANALYZE) target, target_hot, target_history")


def add_source(conn: psycopg.Connection[Any], name: str = "bench") -> int:
    """A source to hold the targets."""
    row = conn.execute("INSERT INTO source (name, kind) VALUES (%s, 'git') RETURNING id", (name,)).fetchone()
    if row is None:
        raise LookupError
    return int(row[0])


def observations(numbers: Sequence[int], newer_every: int = 0, newer: datetime = UNCHANGED) -> list[Observation]:
    """What a provider says of the targets ``fill`` made: the stored time, every ``newer_every``th one ``newer``."""
    return [
        Observation(
            name=f"owner-{number // 50}/repository-{number}",
            display_name=f"Owner-{number // 50}/Repository-{number}",
            address=f"https://git.example.org/owner-{number // 50}/repository-{number}.git",
            provider_id=str(700_000_000 + number),
            remote_modified_at=newer if newer_every and number % newer_every == 0 else UNCHANGED,
            time_state=TimeState.VALID,
        )
        for number in numbers
    ]

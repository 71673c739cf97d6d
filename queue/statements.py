"""How this room speaks SQL: one statement a file under ``queue/sql``, tuples back, the caller's transaction."""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from ..schema.database import statement

Conn = psycopg.Connection[Any]
"""A connection inside the caller's transaction, whatever rows the caller asked for."""


def fetch(conn: Conn, name: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """Run the statement file ``name`` and return its rows."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(statement("resweep.queue.sql", name), values).fetchall()


def fetch_one(conn: Conn, name: str, values: Mapping[str, object]) -> tuple[Any, ...] | None:
    """Run the statement file ``name`` and return its first row, or ``None``."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(statement("resweep.queue.sql", name), values).fetchone()


def change(conn: Conn, name: str, values: Mapping[str, object]) -> int:
    """Run the statement file ``name`` and return how many rows it changed."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(statement("resweep.queue.sql", name), values).rowcount


def numbers(values: Sequence[int]) -> str:
    """Integers as an array literal: some twenty times faster than letting the driver adapt each one."""
    return "{" + ",".join(map(str, values)) + "}"


def words(values: Sequence[str | None]) -> str | None:
    """Words of ours (``a-z``, ``_`` and commas: nothing foreign) as an array literal; nothing said at all is NULL."""
    if not any(values):
        return None
    return "{" + ",".join(f'"{value}"' if value else "NULL" for value in values) + "}"


def said(values: list[Any]) -> list[Any] | None:
    """The values, or NULL for the whole array when none of them is set."""
    return values if any(value is not None for value in values) else None

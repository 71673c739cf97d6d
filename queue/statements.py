"""How this room speaks SQL: one statement a file under ``queue/sql``, tuples back, the caller's transaction."""

from collections.abc import Mapping
from typing import Any

from psycopg.rows import tuple_row

from ..schema.database import Connection, statement

Conn = Connection
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

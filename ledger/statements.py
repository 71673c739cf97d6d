"""How this room speaks SQL: one statement a file under ``ledger/sql``, tuples back, the caller's transaction."""

from collections.abc import Mapping
from typing import Any

from psycopg.rows import tuple_row

from ..schema.database import Connection, statement

_PACKAGE = "resweep.ledger.sql"


def fetch(conn: Connection, name: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
    """Run the statement file ``name`` and return its rows."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(statement(_PACKAGE, name).encode(), values).fetchall()


def fetch_one(conn: Connection, name: str, values: Mapping[str, object]) -> tuple[Any, ...] | None:
    """Run the statement file ``name`` and return its first row, or ``None``."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(statement(_PACKAGE, name).encode(), values).fetchone()


def change(conn: Connection, name: str, values: Mapping[str, object]) -> int:
    """Run the statement file ``name`` and return how many rows it changed."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(statement(_PACKAGE, name).encode(), values).rowcount

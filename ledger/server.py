"""What the database server says of itself, for the doctor."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from ..schema.database import Connection
from .statements import fetch_one


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One look at the server."""

    version: str
    version_number: int
    isolation: str
    time_zone: str
    encoding: str
    max_connections: int
    connections: int
    at: datetime
    standby: bool
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    oldest_transaction: timedelta | None
    oldest_application: str | None
    dead_rows: int
    live_rows: int
    database_bytes: int


def facts(conn: Connection) -> ServerFacts:
    """Look once."""
    row = fetch_one(conn, "server_facts", {})
    assert row is not None  # noqa: S101 - a SELECT without FROM
    return ServerFacts(
        version=row[0],
        version_number=row[1],
        isolation=row[2],
        time_zone=row[3],
        encoding=row[4],
        max_connections=row[5],
        connections=row[6],
        at=row[7],
        standby=row[8],
        fsync=row[9] == "on",
        full_page_writes=row[10] == "on",
        synchronous_commit=row[11],
        oldest_transaction=row[12],
        oldest_application=row[13],
        dead_rows=row[14],
        live_rows=row[15],
        database_bytes=row[16],
    )


def moment(conn: Connection) -> datetime:
    """The database's time: the only one that rules on rows compare with."""
    row = fetch_one(conn, "moment", {})
    assert row is not None  # noqa: S101 - a SELECT without FROM
    at: datetime = row[0]
    return at

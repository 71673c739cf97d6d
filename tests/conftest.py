"""Fixtures that every test may ask for: a database of its own on a real PostgreSQL."""

from collections.abc import Iterator

import psycopg
import pytest

from resweep.schema.database import Connection, Database
from tests.support import database as real


@pytest.fixture(scope="session")
def database_server() -> Iterator[str]:
    """The server of this session, started when the first test needs it."""
    with real.server() as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def database_template(database_server: str) -> str:
    """The name of the migrated template database."""
    return real.template(database_server)


@pytest.fixture
def database_url(database_server: str, database_template: str) -> Iterator[str]:
    """A connection string to a fresh copy of the migrated template."""
    with real.copy(database_server, database_template) as conninfo:
        yield conninfo


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A ``Database`` on the copy."""
    opened = Database(database_url, pool_size=8, application_name="resweep tests")
    yield opened
    opened.close()


@pytest.fixture
def conn(database_url: str) -> Iterator[Connection]:
    """An open connection to the copy, in UTC, rolled back at the end."""
    with psycopg.connect(database_url, options="-c TimeZone=UTC") as opened:
        yield opened
        if not opened.closed:  # a test may be about that
            opened.rollback()

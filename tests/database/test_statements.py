"""Every statement file is accepted by the server against the migrated schema (PREPARE resolves every name and type)."""

import re
from collections.abc import Iterator
from importlib.resources import files

import psycopg
import pytest

from resweep.schema.database import Connection, statement
from tests.support import database as real

_PACKAGES = ("resweep.ledger.sql",)  # the queue's are asked about in test_queue_schema.py
_NAMED = re.compile(r"%\((\w+)\)s")


def _files() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        for entry in files(package).iterdir():
            if entry.name.endswith(".sql"):
                yield package, entry.name.removesuffix(".sql")


_ALL = sorted(_files())


@pytest.fixture(scope="module")
def migrated(database_server: str, database_template: str) -> Iterator[Connection]:
    """One connection for all statements: preparing changes nothing."""
    with real.copy(database_server, database_template) as url, psycopg.connect(url, autocommit=True) as conn:
        for package, name in _ALL:
            text = statement(package, name)
            if re.search(r"^CREATE TEMP", text, re.MULTILINE):
                conn.execute(text.encode())
        yield conn


def test_there_are_statement_files() -> None:
    assert _ALL


@pytest.mark.parametrize(("package", "name"), _ALL, ids=[f"{package.split('.')[1]}-{name}" for package, name in _ALL])
def test_the_server_accepts(migrated: Connection, package: str, name: str) -> None:
    text = statement(package, name)
    names: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    body = _NAMED.sub(numbered, text).replace("%%", "%")
    code = "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("--")).strip()
    assert text.lstrip().startswith("--"), "a comment says what and why"
    assert code
    verb = code.split(None, 1)[0].upper()
    if verb in {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "VALUES", "MERGE"}:
        migrated.execute(f"PREPARE tried AS {code}".encode())
        migrated.execute("DEALLOCATE tried")
    else:  # COPY, CREATE TEMPORARY TABLE, LISTEN, …: run once by the tests of their functions
        assert verb in {"CREATE", "COPY", "TRUNCATE", "LOCK", "LISTEN", "NOTIFY", "SET", "ANALYZE"}, verb

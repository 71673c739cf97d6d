"""Bringing a database to the schema: twice, by two at once, half way, newer and edited (T60 to T64)."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from resweep.schema import migrate
from resweep.schema.errors import DatabaseUnavailable, SchemaMismatch
from resweep.schema.migrate import Migration


@pytest.fixture
def empty(database_server: str) -> Iterator[str]:
    """A connection string to an empty database."""
    name = f"resweep_empty_{uuid4().hex[:12]}"
    with psycopg.connect(database_server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield make_conninfo(database_server, dbname=name)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _migration(number: int, text: str) -> Migration:
    return Migration(number=number, name=f"{number:04d}_x", sql=text, checksum=hashlib.sha256(text.encode()).digest())


def _tables(conninfo: str) -> set[str]:
    with psycopg.connect(conninfo) as conn:
        rows = conn.execute("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchall()
    return {row[0] for row in rows}


def test_t60_applying_twice_changes_nothing(empty: str) -> None:
    first = migrate.apply(empty)
    with psycopg.connect(empty) as conn:
        before = conn.execute("SELECT pg_current_wal_insert_lsn()::text, * FROM schema_migration").fetchall()
    assert first == [migration.name for migration in migrate.migrations()]
    assert migrate.apply(empty) == []
    with psycopg.connect(empty) as conn:
        after = conn.execute("SELECT pg_current_wal_insert_lsn()::text, * FROM schema_migration").fetchall()
    assert [row[1:] for row in before] == [row[1:] for row in after]
    migrate.check(empty)


def test_two_processes_at_once_apply_each_migration_once(empty: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(migrate.apply, [empty] * 4))
    assert sorted(len(names) for names in applied) == [0, 0, 0, len(migrate.migrations())]


def test_a_migration_that_fails_half_way_leaves_the_earlier_state(empty: str) -> None:
    plan = [_migration(1, "CREATE TABLE one (x int)"), _migration(2, "CREATE TABLE two (x int); SELECT 1 / 0")]
    with pytest.raises(SchemaMismatch, match=r"0002_x failed and was rolled back: division by zero"):
        migrate.apply(empty, wanted=plan)
    assert {"one"} == _tables(empty) & {"one", "two"}
    healed = [plan[0], _migration(2, "CREATE TABLE two (x int)")]
    assert migrate.apply(empty, wanted=healed) == ["0002_x"]


def test_a_newer_schema_is_refused_and_left_alone(empty: str) -> None:
    migrate.apply(empty)
    with psycopg.connect(empty) as conn:
        conn.execute("INSERT INTO schema_migration (number, name, checksum) VALUES (9999, '9999_later', '')")
    for act in (migrate.apply, migrate.check):
        with pytest.raises(SchemaMismatch, match=r"newer than this program: it holds 9999_later"):
            act(empty)


def test_an_edited_migration_is_refused(empty: str) -> None:
    migrate.apply(empty)
    with psycopg.connect(empty) as conn:
        conn.execute("UPDATE schema_migration SET checksum = 'x' WHERE number = 1")
    with pytest.raises(SchemaMismatch, match=r"0001_\w+ was applied with another text"):
        migrate.apply(empty)
    assert migrate.status(empty)[0].state == "edited"


def test_a_schema_not_yet_applied_is_said_with_the_command(empty: str) -> None:
    with pytest.raises(SchemaMismatch, match=r"resweep schema apply"):
        migrate.check(empty)
    assert {state.state for state in migrate.status(empty)} == {"pending"}
    assert "schema_migration" not in _tables(empty)


def test_t64_a_locked_table_ends_in_words_not_in_a_wait_without_end(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "_LOCK_TIMEOUT", "50ms")
    migrate.apply(empty, wanted=[_migration(1, "CREATE TABLE one (x int)")])
    with psycopg.connect(empty) as other:
        other.execute("LOCK TABLE one IN ACCESS SHARE MODE")
        plan = [_migration(1, "CREATE TABLE one (x int)"), _migration(2, "ALTER TABLE one ADD COLUMN y int")]
        with pytest.raises(DatabaseUnavailable, match=r"stop the runtime"):
            migrate.apply(empty, wanted=plan)
    assert migrate.apply(empty, wanted=plan) == ["0002_x"]

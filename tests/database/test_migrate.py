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


def test_two_that_wait_name_who_holds_the_lock(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "_TURN_SECONDS", 0.3)
    with psycopg.connect(empty, autocommit=True, application_name="a stuck one") as other:
        other.execute("SELECT pg_advisory_lock(%s, 1)", (migrate.LOCK_CLASS,))
        with pytest.raises(DatabaseUnavailable, match=rf"process {other.info.backend_pid} \(a stuck one, .+\)"):
            migrate.apply(empty)
    assert migrate.apply(empty)


_CONCURRENTLY = """-- no transaction
-- An index for a table in use; dropped first, because one that broke off is left invalid.
DROP INDEX CONCURRENTLY IF EXISTS one_x;
CREATE UNIQUE INDEX CONCURRENTLY one_x ON one (x);
"""


def test_a_migration_without_a_transaction_runs_again_whole_after_it_broke_off(empty: str) -> None:
    plan = [_migration(1, "CREATE TABLE one (x int); INSERT INTO one VALUES (1), (1)"), _migration(2, _CONCURRENTLY)]
    with pytest.raises(SchemaMismatch, match=r"0002_x failed and will be run again"):
        migrate.apply(empty, wanted=plan)
    with psycopg.connect(empty) as conn:
        assert conn.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'one_x'::regclass").fetchone() == (
            False,
        )
        conn.execute("DELETE FROM one")
    assert migrate.apply(empty, wanted=plan) == ["0002_x"]
    with psycopg.connect(empty) as conn:
        assert conn.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 'one_x'::regclass").fetchone() == (
            True,
        )


def test_a_server_that_ends_in_the_middle_is_no_fault_of_the_schema(empty: str) -> None:
    killed = _migration(1, "CREATE TABLE one (x int); SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(DatabaseUnavailable, match=r"went away during migration 0001_x"):
        migrate.apply(empty, wanted=[killed])
    assert "one" not in _tables(empty)


def test_a_user_without_rights_is_told_what_to_grant(empty: str) -> None:
    role = f"poor_{uuid4().hex[:8]}"
    with psycopg.connect(empty, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(sql.Identifier(role)))
        try:
            with pytest.raises(SchemaMismatch, match=r"may not make tables: .*GRANT CREATE"):
                migrate.apply(make_conninfo(empty, user=role, password="x"))
        finally:
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_a_database_in_another_encoding_is_refused(database_server: str) -> None:
    name = f"resweep_latin_{uuid4().hex[:8]}"
    with psycopg.connect(database_server, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0").format(sql.Identifier(name))
        )
        try:
            with pytest.raises(SchemaMismatch, match=r"encoded in LATIN1"):
                migrate.apply(make_conninfo(database_server, dbname=name))
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

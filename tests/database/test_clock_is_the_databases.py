"""No worker's clock is believed: an hour ahead or behind, it claims, renews and completes by the database's (F11)."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
import time_machine

from benchmarks.table import add_source, fill
from resweep.queue import leases, outcomes
from resweep.schema.records import Completion

WORKER = UUID(int=1)
LEASE = timedelta(seconds=60)
SLACK = timedelta(seconds=30)


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(hours=-1), timedelta(days=400)])
def test_f11_lease_and_completion_are_in_database_time(conn: psycopg.Connection[Any], ahead: timedelta) -> None:
    fill(conn, source_id=add_source(conn), first=1, count=2, state="waiting")
    real = datetime.now(UTC)
    with time_machine.travel(real + ahead, tick=True):
        first, second = leases.claim(conn, WORKER, limit=2, lease=LEASE)
        assert leases.heartbeat(conn, WORKER, [(first.target_id, first.lease_token)], LEASE)
        assert leases.reap(conn).leases == 0
        outcomes.complete(conn, [Completion(target_id=second.target_id, lease_token=second.lease_token, reports=())])
    row = conn.execute(
        "SELECT min(lease_expires_at), min(scan_started_at), max(completed_at) FROM target_hot"
    ).fetchone()
    assert row is not None
    expires, started, completed = row
    assert abs(first.lease_expires_at - real - LEASE) < SLACK
    assert abs(expires - real - LEASE) < SLACK
    assert abs(started - real) < SLACK
    assert abs(completed - real) < SLACK

"""Cycles: their row, their lock, their fence, and what is left behind."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from resweep.queue import admin, cycles
from resweep.queue.census import cycles as list_cycles
from resweep.queue.census import runs as list_runs
from resweep.queue.outcomes import Deferral, defer
from resweep.schema.errors import CycleFenced
from resweep.schema.records import ObserveCounts
from tests.support.queue import admit, day, finish, source, take

Conn = Connection[Any]


def test_one_holder_at_a_time_for_the_connections_whole_life(database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        made, other = source(conn), source(conn, "other")
        conn.commit()
    first = psycopg.connect(database_url, autocommit=True)
    with psycopg.connect(database_url, autocommit=True) as second:
        assert cycles.hold(first, made)
        assert not cycles.hold(second, made)
        assert cycles.hold(second, other)
        assert not cycles.let_go(second, made)
        first.close()
        for _ in range(100):
            if cycles.hold(second, made):
                break
            second.execute("SELECT pg_sleep(0.05)")
        else:
            pytest.fail("the lock outlived its connection")
        assert cycles.let_go(second, made)


def test_a_step_adds_its_counts_under_the_fence(conn: Conn) -> None:
    made = source(conn)
    cycle = cycles.begin(conn, made, trigger="manual", settings_fingerprint=b"s", now=day(1))
    counts = ObserveCounts(fetched_count=5, known_count=3, queued_new_count=2, older_timestamp_count=1, renamed_count=1)
    cycles.add(conn, cycle, counts, pages=1, requests=2, not_modified=1, queued_updated=1, retired=1)
    cycles.add(conn, cycle, counts, pages=1, queued_updated=2, queued_reconcile=4)
    so_far = cycles.fence(conn, cycle)
    assert (so_far.queued_updated_count, so_far.queued_reconcile_count) == (3, 4)
    assert cycles.finish(conn, cycle, status="success", changed_waiting=7, complete_listing=True, now=day(2))
    assert not cycles.finish(conn, cycle, status="failed")
    (shown,) = list_cycles(conn, source_id=made)
    wanted = {
        "status": "success",
        "trigger": "manual",
        "fetched_count": 10,
        "queued_new_count": 4,
        "pages": 2,
        "changed_waiting_count": 7,
    }
    assert {name: shown[name] for name in wanted} == wanted
    assert shown["source"] == "acme"


def test_an_ended_cycle_is_fenced(conn: Conn) -> None:
    cycle = cycles.begin(conn, source(conn))
    cycles.finish(conn, cycle, status="failed", error_code="server", error_message="502")
    with pytest.raises(CycleFenced):
        cycles.fence(conn, cycle)
    with pytest.raises(CycleFenced):
        cycles.add(conn, cycle, pages=1)


def test_a_cycle_left_behind_is_failed_after_a_minute_if_nobody_holds_its_lock(database_url: str) -> None:
    with psycopg.connect(database_url) as conn, psycopg.connect(database_url, autocommit=True) as direct:
        held, left, young = (source(conn, name) for name in ("held", "left", "young"))
        cycles.hold(direct, held)
        for made, at in ((held, 1), (left, 1), (young, 2)):
            cycles.begin(conn, made, now=day(at))
        conn.commit()
        reaped = cycles.reap_abandoned(conn, now=day(2) + timedelta(seconds=59))
        assert [each["source"] for each in list_cycles(conn) if each["id"] in reaped] == ["left"]
        assert {each["source"]: each["status"] for each in list_cycles(conn)} == {
            "held": "running",
            "left": "failed",
            "young": "running",
        }
        assert cycles.hold(direct, left), "looking must not have taken the lock"
        assert len(cycles.reap_abandoned(conn, now=day(2) + timedelta(seconds=61))) == 1


def test_a_new_cycle_ends_the_one_its_source_left_behind(conn: Conn) -> None:
    made = source(conn)
    first = cycles.begin(conn, made)
    cycles.begin(conn, made)
    with pytest.raises(CycleFenced):
        cycles.fence(conn, first)


def test_t53_t54_backlog_is_what_could_run_now_or_runs(conn: Conn) -> None:
    made = source(conn)
    names = ["claimable", "running", "waiting", "deferred", "due", "reserved", "done"]
    ids = dict(zip(names, admit(conn, made, names, now=day(1)), strict=True))
    by_id = {each.target_id: each for each in take(conn, now=day(1))}
    finish(conn, [by_id[ids["done"]]], now=day(1))
    put_off = [("waiting", day(9)), ("deferred", day(9)), ("due", day(1))]
    defer(
        conn,
        [Deferral(target_id=ids[name], lease_token=1, reason="x", until=until) for name, until in put_off],
        now=day(1),
    )
    conn.execute("UPDATE target_hot SET state = 'pending', deferred_reason = NULL WHERE id = %s", (ids["waiting"],))
    conn.execute(
        "UPDATE target_hot SET state = 'pending', lease_owner = NULL, lease_expires_at = NULL WHERE id = ANY (%s)",
        ([ids["claimable"], ids["reserved"]],),
    )
    admin.reserve(conn, [ids["reserved"]], by="x", period=timedelta(days=30), now=day(1))
    assert cycles.backlog(conn, made, now=day(2)) == 2
    assert cycles.backlog(conn, source(conn, "other")) == 0


def test_every_other_pass_has_a_row_in_runs(conn: Conn) -> None:
    run = cycles.begin_run(conn, "reaper", trigger="startup")
    assert cycles.finish_run(conn, run, status="success", counts={"leases": 3})
    assert not cycles.finish_run(conn, run, status="failed")
    (shown,) = list_runs(conn, kind="reaper")
    assert (shown["status"], shown["counts"]) == ("success", {"leases": 3})

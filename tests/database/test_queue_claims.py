"""Claims: order, quotas, limits, low water, leases, heartbeats, the reaper."""

from datetime import timedelta
from threading import Barrier, Thread
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from resweep.queue import admin, sources
from resweep.queue.census import history, in_flight
from resweep.queue.intake import observe
from resweep.queue.leases import LowWater, claim, heartbeat, reap, register_worker, stop_worker
from resweep.queue.outcomes import Deferral, defer
from resweep.queue.requests import request
from resweep.schema.records import Admission, State, WorkerIdentity
from tests.database.test_queue_observe import run
from tests.support.queue import OTHER, WORKER, admit, day, finish, new_worker, row, seen, source, state, take

Conn = Connection[Any]
MINUTE = timedelta(minutes=1)


def test_a_claim_says_all_that_a_worker_needs(conn: Conn) -> None:
    made = source(conn, "acme-git", "git")
    observe(conn, made, [seen("a", revision=b"digest", provider_id="7", fork=True)], now=day(1))
    (got,) = take(conn, now=day(2))
    assert (got.source, got.kind, got.name, got.address) == ("acme-git", "git", "a", "https://example.org/a")
    assert (got.provider_id, got.attributes, got.observed_revision) == ("7", {"fork": True}, b"digest")
    assert (got.admission, got.attempts, got.lease_token) == (Admission.NEW, 1, 1)
    assert got.lease_expires_at == day(2) + MINUTE


def test_requested_first_then_priority_then_not_before_then_id(conn: Conn) -> None:
    made = source(conn)
    ids = dict(zip("abcdef", admit(conn, made, "abcdef", now=day(1)), strict=True))
    admin.set_priority(conn, [ids["e"]], priority=0)
    admin.set_priority(conn, [ids["a"]], priority=2)
    admin.set_priority(conn, [ids["f"]], priority=2)
    request(conn, [ids["f"]], now=day(2))
    request(conn, [ids["d"]], now=day(3))
    admin.defer(conn, [ids["b"]], reason="later", until=day(1) + MINUTE)
    order = [each.target_id for each in take(conn, now=day(4))]
    assert order == [ids[name] for name in "dfecba"]


def test_the_order_holds_over_single_claims(conn: Conn) -> None:
    made = source(conn)
    ids = dict(zip("abc", admit(conn, made, "abc", now=day(1)), strict=True))
    admin.set_priority(conn, [ids["c"]], priority=0)
    request(conn, [ids["b"]], now=day(2))
    order = [take(conn, 1, now=day(3))[0].target_id for _ in range(3)]
    assert order == [ids[name] for name in "bca"]


def test_a_waiting_row_is_not_claimed_before_its_time(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, "a", now=day(1))
    admin.defer(conn, [a], reason="too_large", until=day(3))
    assert take(conn, now=day(2.9)) == []
    (got,) = take(conn, now=day(3))
    assert got.target_id == a
    assert row(conn, a)["deferred_reason"] is None


def test_a_reserved_row_is_not_claimed(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, "a", now=day(1))
    assert admin.reserve(conn, [a], by="x", period=timedelta(days=1), now=day(1)) == [a]
    assert admin.reserve(conn, [a], by="y", now=day(1)) == []
    assert take(conn, now=day(1.5)) == []
    assert reap(conn, now=day(2.5)).unreserved == 1
    assert [each.target_id for each in take(conn, now=day(2.5))] == [a]


def test_nothing_is_claimed_from_a_paused_source(conn: Conn) -> None:
    made = source(conn)
    admit(conn, made, "a", now=day(1))
    sources.pause(conn, made, reason="maintenance", by="kim", until=day(3))
    assert take(conn, now=day(2)) == []
    assert sources.list_sources(conn, now=day(2))[0].paused
    assert len(take(conn, now=day(3))) == 1
    sources.pause(conn, made, reason="for good")
    admit(conn, made, "b", now=day(3))
    assert take(conn, now=day(30)) == []
    assert sources.resume(conn, made)
    assert len(take(conn, now=day(30))) == 1


def test_the_third_fault_in_a_row_pauses_the_source_and_one_claim_probes_it(conn: Conn) -> None:
    made = source(conn)
    admit(conn, made, "abc", now=day(1))
    assert sources.note_fault(conn, made, code="dns", now=day(2)).paused_until is None
    assert not sources.list_sources(conn)[0].paused
    sources.note_success(conn, made)
    noted = [sources.note_fault(conn, made, code="dns", message="no such host", now=day(2)) for _ in range(3)]
    assert [each.paused_until for each in noted] == [None, None, day(2) + timedelta(seconds=30)]
    shown = sources.list_sources(conn, now=day(2))[0]
    assert (shown.paused, shown.pause_reason, shown.paused_by) == (True, "dns", "faults")
    assert take(conn, now=day(2)) == []
    later = day(2) + MINUTE
    assert sources.due_probes(conn, now=later) == [made]
    assert len(take(conn, now=later)) == 1
    assert take(conn, now=later) == []
    assert sources.note_fault(conn, made, now=later).paused_until == later + MINUTE
    assert sources.note_success(conn, made)
    assert len(take(conn, now=later)) == 2
    assert not sources.note_success(conn, made)


def test_a_persons_pause_outlives_faults_and_successes(conn: Conn) -> None:
    made = source(conn)
    sources.pause(conn, made, reason="for good", by="kim")
    for _ in range(4):
        sources.note_fault(conn, made)
    sources.note_success(conn, made)
    shown = sources.list_sources(conn)[0]
    assert (shown.paused, shown.paused_by, shown.fault_streak) == (True, "kim", 0)


def test_each_source_with_work_gets_its_share_of_a_batch(conn: Conn) -> None:
    big, small, empty = source(conn, "big"), source(conn, "small"), source(conn, "empty")
    admit(conn, big, [f"b{n}" for n in range(50)], now=day(1))
    admit(conn, small, [f"s{n}" for n in range(3)], now=day(2))
    claims = take(conn, 10, now=day(3))
    taken = [each.source for each in claims]
    assert (taken.count("big"), taken.count("small")) == (5, 3)
    assert len(take(conn, 10, now=day(3))) == 10
    assert take(conn, sources=[empty], now=day(3)) == []


def test_the_fewest_leased_comes_first_where_the_batch_does_not_divide(conn: Conn) -> None:
    first, second = source(conn, "first"), source(conn, "second")
    admit(conn, first, [f"a{n}" for n in range(9)], now=day(1))
    admit(conn, second, [f"b{n}" for n in range(9)], now=day(1))
    take(conn, 3, sources=[first], now=day(2))
    taken = [each.source for each in take(conn, 1, now=day(2))]
    taken += [each.source for each in take(conn, 1, now=day(2))]
    assert taken == ["second", "second"]


def test_a_batch_never_exceeds_what_was_asked_for(conn: Conn) -> None:
    for number in range(7):
        admit(conn, source(conn, f"s{number}"), [f"r{n}" for n in range(20)], now=day(1))
    assert [len(take(conn, limit, now=day(2))) for limit in (0, 1, 3, 10)] == [0, 1, 3, 10]


def test_sources_are_those_asked_for(conn: Conn) -> None:
    first, second = source(conn, "first"), source(conn, "second")
    admit(conn, first, "a", now=day(1))
    admit(conn, second, "b", now=day(1))
    assert [each.name for each in take(conn, sources=[second], now=day(2))] == ["b"]
    assert take(conn, sources=[], now=day(2)) == []


def test_max_in_progress_of_a_source(conn: Conn) -> None:
    made, free = source(conn, max_in_progress=3), source(conn, "free")
    admit(conn, made, [f"r{n}" for n in range(10)], now=day(1))
    admit(conn, free, [f"f{n}" for n in range(2)], now=day(1))
    claims = take(conn, 20, now=day(2))
    taken = [each.source for each in claims]
    assert (taken.count("acme"), taken.count("free")) == (3, 2)
    assert take(conn, 10, now=day(2)) == []
    finish(conn, claims[:1], now=day(2))
    assert len(take(conn, 10, now=day(2))) == 1


def test_max_in_progress_over_all_sources(conn: Conn) -> None:
    for name in ("x", "y"):
        admit(conn, source(conn, name), [f"{name}{n}" for n in range(10)], now=day(1))
    assert len(take(conn, 20, max_in_progress=5, now=day(2))) == 5
    assert take(conn, 20, max_in_progress=5, now=day(2)) == []


def test_a_limit_set_meanwhile_is_kept_by_a_process_that_did_not_know_it(conn: Conn) -> None:
    made = source(conn)
    admit(conn, made, [f"r{n}" for n in range(10)], now=day(1))
    water = LowWater(full_search=timedelta(hours=1))
    assert len(take(conn, 2, low_water=water, now=day(2))) == 2
    source(conn, max_in_progress=3)
    assert len(take(conn, 10, low_water=water, now=day(2))) <= 1
    assert len(take(conn, 10, low_water=water, now=day(2))) <= 1
    assert len(in_flight(conn)) == 3


def test_max_in_progress_holds_under_concurrency(database_url: str) -> None:
    with psycopg.connect(database_url) as setup:
        made = source(setup, max_in_progress=7)
        admit(setup, made, [f"r{n}" for n in range(200)])
        setup.commit()
    start = Barrier(6)
    most: list[int] = []

    def work() -> None:
        worker, water = new_worker(), LowWater()
        with psycopg.connect(database_url) as conn:
            start.wait()
            for _ in range(8):
                claims = claim(conn, worker, limit=4, low_water=water)
                conn.commit()
                most.append(len(in_flight(conn)))
                finish(conn, claims)
                conn.commit()

    run([Thread(target=work) for _ in range(6)])
    assert 0 < max(most) <= 7


def test_max_in_progress_holds_on_connections_without_a_transaction(database_url: str) -> None:
    with psycopg.connect(database_url) as setup:
        made = source(setup, max_in_progress=5)
        admit(setup, made, [f"r{n}" for n in range(100)])
        setup.commit()
    start = Barrier(5)
    most: list[int] = []

    def work() -> None:
        worker = new_worker()
        with psycopg.connect(database_url, autocommit=True) as conn:
            start.wait()
            for _ in range(8):
                claims = claim(conn, worker, limit=3)
                most.append(len(in_flight(conn)))
                finish(conn, claims)

    run([Thread(target=work) for _ in range(5)])
    assert 0 < max(most) <= 5


def test_no_target_is_handed_to_two_workers(database_url: str) -> None:
    with psycopg.connect(database_url) as setup:
        for name in ("x", "y", "z"):
            admit(setup, source(setup, name), [f"{name}{n}" for n in range(100)])
        setup.commit()
    start = Barrier(4)
    handed: list[tuple[int, int]] = []

    def work() -> None:
        worker, water = new_worker(), LowWater()
        with psycopg.connect(database_url) as conn:
            start.wait()
            while claims := claim(conn, worker, limit=7, low_water=water):
                conn.commit()
                handed.extend((each.target_id, each.lease_token) for each in claims)

    run([Thread(target=work) for _ in range(4)])
    assert len(handed) == len(set(handed)) == 300


def test_low_water_finds_what_lies_below_it(conn: Conn) -> None:
    ticks = [0.0]
    water = LowWater(full_search=timedelta(seconds=2), monotonic=lambda: ticks[0])
    made = source(conn)
    admit(conn, made, ["late1", "late2", "late3"], now=day(5))
    assert len(take(conn, 1, low_water=water, now=day(6))) == 1
    admit(conn, made, ["early"], now=day(1))
    assert take(conn, 1, low_water=water, now=day(6))[0].name.startswith("late")
    ticks[0] = 3.0
    assert take(conn, 1, low_water=water, now=day(6))[0].name == "early"
    admit(conn, made, ["early2"], now=day(0.5))
    assert take(conn, 1, low_water=water, now=day(6))[0].name.startswith("late")
    assert (
        take(conn, 1, low_water=water, now=day(6))[0].name == "early2"
    )  # empty above the mark: searched in full at once


def test_a_lease_starts_at_the_claim_whatever_the_wait(conn: Conn) -> None:
    admit(conn, source(conn), "a", now=day(1))
    (got,) = take(conn, lease=timedelta(seconds=90), now=day(20))
    assert got.lease_expires_at == day(20) + timedelta(seconds=90)


def test_a_heartbeat_renews_and_says_what_is_still_held(conn: Conn) -> None:
    admit(conn, source(conn), "abc", now=day(1))
    a, b, c = take(conn, now=day(2))
    take_back = reap(conn, now=day(1))
    assert take_back.leases == 0
    finish(conn, [c], now=day(2))
    held = [(a.target_id, a.lease_token), (b.target_id, b.lease_token + 1), (c.target_id, c.lease_token), (10**12, 1)]
    assert heartbeat(conn, WORKER, held, MINUTE, now=day(2) + MINUTE / 2) == {held[0]}
    assert row(conn, a.target_id)["lease_expires_at"] == day(2) + 1.5 * MINUTE
    assert heartbeat(conn, OTHER, held[:1], MINUTE, now=day(3)) == set()
    assert heartbeat(conn, WORKER, [], MINUTE) == set()


def test_the_reaper_gives_expired_leases_back(conn: Conn) -> None:
    admit(conn, source(conn), "ab", now=day(1))
    a, b = take(conn, now=day(2))
    heartbeat(conn, WORKER, [(b.target_id, b.lease_token)], timedelta(hours=1), now=day(2))
    counts = reap(conn, now=day(2) + MINUTE + timedelta(seconds=5))
    assert (counts.pending, counts.failed, counts.late) == (1, 0, (timedelta(seconds=5),))
    assert (state(conn, a.target_id), state(conn, b.target_id)) == (State.PENDING, State.IN_PROGRESS)
    assert row(conn, a.target_id)["attempts"] == 1
    assert [each.outcome for each in history(conn, a.target_id)] == ["expired"]


def test_a_target_that_kills_its_workers_fails_when_its_attempts_are_used_up(conn: Conn) -> None:
    (a,) = admit(conn, source(conn), "a", now=day(1))
    for number in range(2, 7):
        assert state(conn, a) is State.PENDING
        take(conn, now=day(number))
        reap(conn, max_attempts=5, now=day(number + 0.5))
    failed = row(conn, a)
    assert (failed["state"], failed["last_error_code"], failed["attempts"]) == ("failed", "lease_expired", 5)


def test_a_request_meanwhile_revives_what_the_reaper_would_fail(conn: Conn) -> None:
    (a,) = admit(conn, source(conn), "a", now=day(1))
    take(conn, now=day(2))
    request(conn, [a], now=day(2))
    reap(conn, max_attempts=1, now=day(3))
    assert (state(conn, a), row(conn, a)["admission"], row(conn, a)["attempts"]) == (State.PENDING, "requested", 0)


def test_a_due_deferred_row_is_claimed_directly(conn: Conn) -> None:
    made = source(conn)
    admit(conn, made, "a", now=day(1))
    (got,) = take(conn, now=day(2))
    defer(
        conn,
        [Deferral(target_id=got.target_id, lease_token=got.lease_token, reason="limited", delay=MINUTE)],
        now=day(2),
    )
    assert state(conn, got.target_id) is State.DEFERRED
    assert take(conn, now=day(2)) == []
    assert take(conn, now=day(2) + MINUTE)[0].attempts == 1


def test_ids_beyond_two_to_the_31st(conn: Conn) -> None:
    conn.execute("ALTER TABLE target ALTER COLUMN id RESTART WITH 4000000000")
    made = source(conn)
    (a,) = admit(conn, made, "a", day(1), now=day(1))
    assert a == 4_000_000_000
    claims = take(conn, now=day(2))
    assert heartbeat(conn, WORKER, [(a, 1)], MINUTE, now=day(2)) == {(a, 1)}
    request(conn, [a], now=day(2))
    assert finish(conn, claims, now=day(2)) == [State.PENDING]


def test_workers_are_known_by_uuid_and_a_restart_is_another_worker(conn: Conn) -> None:
    for identity in (WORKER, OTHER):
        register_worker(conn, WorkerIdentity(uuid=identity, host="h", pid=1), slots=4)
    admit(conn, source(conn), "a", now=day(1))
    take(conn, worker=WORKER, now=day(2))
    (held,) = in_flight(conn)
    assert (held.worker, held.host, held.pid) == (WORKER, "h", 1)
    stop_worker(conn, OTHER)
    assert conn.execute("SELECT FROM worker WHERE stopped_at IS NULL").fetchall().__len__() == 1


@pytest.mark.parametrize("plan", ["force_generic_plan", "force_custom_plan"])
def test_no_plan_claims_more_than_asked_for(conn: Conn, plan: str) -> None:
    made = source(conn)
    admit(conn, made, [f"r{n:03}" for n in range(300)], now=day(1))
    conn.execute(f"SET plan_cache_mode = {plan}".encode())
    for off in ("hashjoin", "mergejoin", "material", "nestloop", "indexscan"):
        conn.execute(f"SET enable_{off} = off")
        assert len(take(conn, 5, now=day(2))) == 5, off

"""Requests, operators' acts, removal by capability, upgrades, refresh, wake-ups."""

from datetime import timedelta
from threading import Thread
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from resweep.queue import admin, removal, wakeups
from resweep.queue.intake import observe
from resweep.queue.leases import register_worker
from resweep.queue.outcomes import Deferral, Failure, complete, defer, fail
from resweep.queue.policy import refresh_next, refreshed, requeue_stale
from resweep.queue.requests import request
from resweep.schema.records import Completion, State, WorkerIdentity
from tests.database.test_queue_observe import run
from tests.support.queue import WORKER, admit, covered, day, finish, row, scan, seen, source, state, take

Conn = Connection[Any]


def put(conn: Conn, word: str) -> int:
    """A target in this state."""
    made = source(conn)
    (target,) = admit(conn, made, "a", day(1), now=day(1))
    if word in {"in_progress", "done", "failed", "deferred"}:
        (claim,) = take(conn, now=day(2))
        if word == "done":
            finish(conn, [claim], now=day(2))
        if word == "failed":
            fail(
                conn,
                [Failure(target_id=target, lease_token=claim.lease_token, code="x", message="", permanent=True)],
                now=day(2),
            )
        if word == "deferred":
            defer(
                conn, [Deferral(target_id=target, lease_token=claim.lease_token, reason="x", until=day(9))], now=day(2)
            )
    elif word == "unresolved":
        admin.unresolve(conn, [target], reason="redirect")
    elif word == "retired":
        admin.retire(conn, [target], reason="absent")
    assert state(conn, target) == word
    return target


@pytest.mark.parametrize(
    ("word", "after", "accepted", "owed"),
    [
        ("pending", "pending", True, True),
        ("done", "pending", True, True),
        ("failed", "pending", True, True),
        ("deferred", "deferred", True, True),
        ("in_progress", "in_progress", True, True),
        ("retired", "retired", True, True),
        ("unresolved", "unresolved", False, False),
    ],
)
def test_a_request_in_every_state(conn: Conn, word: str, after: str, accepted: bool, owed: bool) -> None:
    target = put(conn, word)
    before = row(conn, target)
    (answer,) = request(conn, [target], now=day(3))
    assert (answer.state, answer.accepted, answer.coalesced) == (after, accepted, False)
    now = row(conn, target)
    assert now["request_no"] - now["scan_request_no"] == int(owed)
    if word in {"done", "failed", "pending"}:
        assert (now["not_before"], now["attempts"], now["admission"]) == (day(3), 0, "requested")
    if word in {"deferred", "unresolved"}:
        assert now["not_before"] == before["not_before"]
    if word == "in_progress":
        assert (now["lease_token"], now["admission"]) == (before["lease_token"], "new")


def test_a_request_with_now_ends_a_deferral(conn: Conn) -> None:
    target = put(conn, "deferred")
    assert request(conn, [target], now_flag=True, now=day(3))[0].state is State.PENDING
    assert row(conn, target)["not_before"] == day(3)


def test_a_deferred_row_that_was_requested_is_claimed_first_when_due(conn: Conn) -> None:
    target = put(conn, "deferred")
    request(conn, [target], now=day(3))
    admit(conn, source(conn), "b", now=day(1))
    assert [each.name for each in take(conn, now=day(9))] == ["a", "b"]


def test_requests_coalesce_and_keep_their_place(conn: Conn) -> None:
    target = put(conn, "done")
    request(conn, [target], now=day(3))
    (again,) = request(conn, [target], now=day(4))
    assert again.coalesced
    assert row(conn, target)["not_before"] == day(3)
    scan(conn, target, now=day(5))
    assert state(conn, target) is State.DONE


def test_a_request_bypasses_the_cooldown(conn: Conn) -> None:
    target = put(conn, "done")
    assert request(conn, [target], now=day(2))[0].state is State.PENDING


def test_a_request_for_something_retired_is_honoured_when_it_is_seen_again(conn: Conn) -> None:
    target = put(conn, "done")
    admin.retire(conn, [target], reason="absent", now=day(3))
    request(conn, [target], now=day(3))
    observe(conn, source(conn), [seen("a", day(1))], now=day(4))
    assert (state(conn, target), row(conn, target)["admission"]) == (State.PENDING, "requested")


def test_unknown_ids_are_missing_from_the_answer(conn: Conn) -> None:
    target = put(conn, "done")
    assert [each.target_id for each in request(conn, [target, 10**12])] == [target]


def test_no_request_is_lost_under_concurrency(database_url: str) -> None:
    with psycopg.connect(database_url) as setup:
        target = put(setup, "done")
        setup.commit()

    def ask() -> None:
        with psycopg.connect(database_url) as conn:
            for _ in range(20):
                request(conn, [target])
                conn.commit()

    def work() -> None:
        with psycopg.connect(database_url) as conn:
            for _ in range(20):
                claims = take(conn)
                conn.commit()
                finish(conn, claims)
                conn.commit()

    run([Thread(target=ask), Thread(target=ask), Thread(target=work)])
    with psycopg.connect(database_url) as conn:
        last = row(conn, target)
        assert last["request_no"] == 40
        assert last["state"] == ("done" if last["scan_request_no"] == 40 else "pending")


def test_retry_starts_failed_targets_again(conn: Conn) -> None:
    target = put(conn, "failed")
    assert admin.retry(conn, [target], now=day(3)) == [target]
    assert (state(conn, target), row(conn, target)["attempts"]) == (State.PENDING, 0)
    assert admin.retry(conn, [target]) == []


def test_retired_by_hand_and_seen_again(conn: Conn) -> None:
    made = source(conn)
    never, done = admit(conn, made, ["never", "done"], day(1), now=day(1))
    admin.defer(conn, [never], reason="x", until=day(20))
    scan(conn, done, now=day(2))
    assert admin.retire(conn, [never, done], reason="dropped", now=day(3)) == {
        never: State.RETIRED,
        done: State.RETIRED,
    }
    assert take(conn, now=day(21)) == []
    counts = observe(conn, made, [seen("never", day(1)), seen("done", day(1))], admit=False, now=day(4))
    assert counts.queued_new_count == 0
    assert state(conn, never) is State.RETIRED
    counts = observe(conn, made, [seen("never", day(1)), seen("done", day(1))], now=day(4))
    assert counts.queued_new_count == 0
    assert (state(conn, never), state(conn, done)) == (State.PENDING, State.DONE)
    assert row(conn, done)["retired_at"] is None


def test_priority_is_zero_to_two(conn: Conn) -> None:
    target = put(conn, "pending")
    with pytest.raises(ValueError, match="0, 1 or 2"):
        admin.set_priority(conn, [target], priority=3)
    assert admin.set_priority(conn, [target], priority=1) == []


def listing(conn: Conn, made: int, names: str, began: float) -> list[int]:
    """One complete listing that shows these names."""
    removal.begin(conn)
    observe(conn, made, [seen(name) for name in names], remember=True, now=day(began))
    return removal.finish(conn, made, began_at=day(began), now=day(began))


def test_absent_from_two_complete_listings_is_retired(conn: Conn) -> None:
    made = source(conn)
    a, b = admit(conn, made, "ab", now=day(1))
    assert listing(conn, made, "a", 2) == []
    assert state(conn, b) is State.PENDING
    assert listing(conn, made, "a", 3) == [b]
    assert (state(conn, a), state(conn, b)) == (State.PENDING, State.RETIRED)
    assert row(conn, b)["retire_reason"] == "absent"
    assert listing(conn, made, "ab", 4) == []
    assert state(conn, b) is State.PENDING


def test_seen_between_two_listings_starts_over(conn: Conn) -> None:
    made = source(conn)
    _, b = admit(conn, made, "ab", now=day(1))
    listing(conn, made, "a", 2)
    observe(conn, made, [seen("b")], now=day(2.5))
    assert listing(conn, made, "a", 3) == []
    assert listing(conn, made, "a", 4) == [b]


@pytest.mark.parametrize("how", ["completed", "requested"])
def test_written_between_two_listings_starts_over(conn: Conn, how: str) -> None:
    made = source(conn)
    _, b = admit(conn, made, "ab", now=day(1))
    listing(conn, made, "a", 2)
    if how == "completed":
        scan(conn, b, now=day(2.5))
    else:
        request(conn, [b], now=day(2.5))
    assert listing(conn, made, "a", 3) == []
    assert listing(conn, made, "a", 4) == [b]


def test_what_was_discovered_during_a_listing_is_not_absent(conn: Conn) -> None:
    made = source(conn)
    admit(conn, made, "a", now=day(1))
    removal.begin(conn)
    observe(conn, made, [seen("late")], now=day(2.5))
    assert removal.finish(conn, made, began_at=day(2)) == []
    assert row(conn, "late")["absent_since"] is None
    assert row(conn, "a")["absent_since"] == day(2)


def test_an_absent_leased_target_is_retired_at_its_claims_end(conn: Conn) -> None:
    made = source(conn)
    (b,) = admit(conn, made, "b", now=day(1))
    listing(conn, made, "", 2)
    claims = take(conn, now=day(2.5))
    assert listing(conn, made, "", 3) == [b]
    assert state(conn, b) is State.IN_PROGRESS
    assert finish(conn, claims, now=day(4)) == [State.RETIRED]


def test_seen_again_before_its_claims_end_a_target_is_not_retired(conn: Conn) -> None:
    made = source(conn)
    (b,) = admit(conn, made, "b", now=day(1))
    claims = take(conn, now=day(2))
    admin.retire(conn, [b], reason="absent", now=day(2))
    observe(conn, made, [seen("b")], now=day(2.5))
    assert state(conn, b) is State.IN_PROGRESS
    assert finish(conn, claims, now=day(3)) == [State.DONE]


def test_gone_twice_and_six_hours_apart(conn: Conn) -> None:
    made = source(conn)
    a, b = admit(conn, made, "ab", now=day(1))
    assert removal.note_gone(conn, [a, b], now=day(2)) == []
    assert removal.note_gone(conn, [a, b], now=day(2.2)) == []
    observe(conn, made, [seen("b")], now=day(2.3))
    assert removal.note_gone(conn, [a, b], now=day(2.25) + timedelta(seconds=1)) == [a]
    assert (state(conn, a), state(conn, b)) == (State.RETIRED, State.PENDING)


def test_an_upgrade_owes_work_under_its_own_cap(conn: Conn) -> None:
    made = source(conn)
    ids = admit(conn, made, "abcd", now=day(1))
    claims = take(conn, now=day(2))
    prints = {"a": b"f1", "b": b"f0", "c": b"f2"}
    complete(
        conn,
        [
            Completion(
                target_id=each.target_id,
                lease_token=each.lease_token,
                reports=(covered(fingerprint=prints[each.name]),) if each.name in prints else (),
            )
            for each in claims
        ],
        now=day(2),
    )
    wanted = {"kingfisher": b"f1"}
    assert requeue_stale(conn, made, wanted, limit=0) == 0
    assert requeue_stale(conn, made, wanted, limit=2, now=day(3)) == 2
    assert requeue_stale(conn, made, wanted, limit=9, now=day(3)) == 1
    assert requeue_stale(conn, made, wanted, limit=9, now=day(3)) == 0
    assert state(conn, ids[0]) is State.DONE
    assert {each.admission.value for each in take(conn, now=day(4))} == {"reconcile"}


def test_the_registry_walk_takes_the_least_recently_refreshed(conn: Conn) -> None:
    made = source(conn)
    a, b, c = admit(conn, made, "abc", now=day(1))
    assert [each.target_id for each in refresh_next(conn, made, limit=2)] == [a, b]
    refreshed(conn, [a], now=day(3))
    refreshed(conn, [b], now=day(2))
    assert [each.target_id for each in refresh_next(conn, made, limit=9)] == [c, b, a]
    observe(conn, made, [seen("b", day(3))], now=day(4))
    assert row(conn, b)["last_refreshed_at"] == day(2)


def test_one_notification_a_batch_and_only_when_somebody_sleeps(database_url: str) -> None:
    with psycopg.connect(database_url) as conn, psycopg.connect(database_url, autocommit=True) as direct:
        made = source(conn)
        register_worker(conn, WorkerIdentity(uuid=WORKER, host="h", pid=1))
        conn.commit()
        wakeups.listen(direct)
        observe(conn, made, [seen("a")])
        conn.commit()
        assert not wakeups.sleep(direct, timedelta(seconds=0.2))
        assert wakeups.fall_asleep(conn, WORKER, timedelta(seconds=30))
        conn.commit()
        observe(conn, made, [seen(f"r{n}") for n in range(20)])
        request(conn, [admit(conn, made, "z")[0]])
        conn.commit()
        assert wakeups.sleep(direct, timedelta(seconds=5))
        assert not wakeups.sleep(direct, timedelta(seconds=0.2))
        wakeups.wake_up(conn, WORKER)
        observe(conn, made, [seen("b")])
        conn.commit()
        assert not wakeups.sleep(direct, timedelta(seconds=0.2))

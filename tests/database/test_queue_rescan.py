"""Rescans of updated targets: baselines, the cap, the cooldown, and who is never promoted (T19 to T48, T52 to T63)."""

from datetime import timedelta
from threading import Barrier
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from resweep.queue import admin
from resweep.queue.census import yields
from resweep.queue.cycles import add, begin, fence
from resweep.queue.intake import count_changed_waiting, observe, requeue_changed
from resweep.queue.leases import reap
from resweep.queue.outcomes import Deferral, Failure, complete, defer, fail
from resweep.queue.requests import request
from resweep.schema.errors import CycleFenced
from resweep.schema.records import Completion, ScanOutcome, ScanReport, State
from tests.database.test_queue_observe import run
from tests.support.queue import admit, day, finish, legacy, row, scan, seen, source, state, take

Conn = Connection[Any]
NO_REST = timedelta(0)


def requeue(conn: Conn, source_id: int, *, limit: int = 100, cooldown: timedelta = NO_REST, at: float = 20) -> int:
    """Requeue at a day."""
    return requeue_changed(conn, source_id, limit=limit, cooldown=cooldown, now=day(at))


def changed(conn: Conn, source_id: int, names: str, *, completed: float = 2, moved: float = 3) -> list[int]:
    """Targets that were scanned, and have changed since."""
    ids = admit(conn, source_id, names, day(1), now=day(1))
    claims = take(conn, now=day(completed))
    finish(conn, claims, now=day(completed))
    observe(conn, source_id, [seen(name, day(moved)) for name in names], now=day(moved))
    return ids


def test_t21_the_claim_copies_the_observed_time_with_the_lease(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], day(1), now=day(1))
    (claim,) = take(conn, now=day(2))
    assert claim.scan_remote_modified_at == row(conn, a)["scan_remote_modified_at"] == day(1)
    assert claim.scan_started_at == day(2)


def test_t22_an_update_seen_during_a_scan_yields_exactly_one_later_scan(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], day(1), now=day(1))
    claims = take(conn, now=day(2))
    observe(conn, made, [seen("a", day(3))], now=day(3))
    assert finish(conn, claims, now=day(4)) == [State.DONE]
    assert requeue(conn, made, at=5) == 1
    scan(conn, a, now=day(6))
    assert requeue(conn, made, at=7) == 0


def test_t23_any_number_of_updates_during_a_scan_yield_one_follow_up(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], day(1), now=day(1))
    claims = take(conn, now=day(2))
    for hour in range(1, 6):
        observe(conn, made, [seen("a", day(2) + timedelta(hours=hour))], now=day(2.5))
    finish(conn, claims, now=day(3))
    assert [requeue(conn, made, at=4), requeue(conn, made, at=4)] == [1, 0]
    scan(conn, a, now=day(5))
    assert requeue(conn, made, at=6) == 0


def test_t25_rescans_add_no_row(conn: Conn) -> None:
    made = source(conn)
    for number in range(1, 6):
        observe(conn, made, [seen("a", day(number))], now=day(number))
        requeue(conn, made, at=number)
        finish(conn, take(conn, now=day(number)), now=day(number))
    assert len(conn.execute("SELECT FROM target_hot").fetchall()) == 1
    assert len(conn.execute("SELECT FROM target_history").fetchall()) == 5


def test_t26_t27_t28_a_legacy_row_is_measured_by_its_completion(conn: Conn) -> None:
    made = source(conn)
    for name in ("before", "equal", "after"):
        legacy(conn, made, name, day(10))
    times = {"before": day(9), "equal": day(10), "after": day(11)}
    observe(conn, made, [seen(name, at) for name, at in times.items()], now=day(12))
    assert {name: row(conn, name)["changed"] for name in times} == {"before": False, "equal": False, "after": True}
    assert requeue(conn, made) == 1
    assert state(conn, "after") is State.PENDING


def test_t29_switching_on_over_many_legacy_rows_admits_nothing(conn: Conn) -> None:
    made = source(conn)
    conn.execute(
        "WITH t AS (INSERT INTO target (source_id, normalized_target, display_name, address, discovered_at) "
        "SELECT %s, 'r' || n, 'r', 'a', now() FROM generate_series(1, 2000) AS n RETURNING id) "
        "INSERT INTO target_hot (id, source_id, not_before, state, completed_at) "
        "SELECT id, %s, now(), 'done', %s FROM t",
        (made, made, day(10)),
    )
    assert requeue(conn, made, limit=10_000) == 0
    observe(conn, made, [seen(f"r{n}", day(9)) for n in range(1, 1001)], now=day(12))
    assert requeue(conn, made, limit=10_000) == 0


def test_t30_after_a_scan_only_remote_times_are_compared(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], day(1), now=day(1))
    scan(conn, a, now=day(10))  # completed long after the provider's own times
    observe(conn, made, [seen("a", day(1) + timedelta(seconds=1))], now=day(11))
    assert row(conn, a)["changed"]


def test_t31_a_row_claimed_without_a_time_is_measured_by_its_claim(conn: Conn) -> None:
    made = source(conn)
    admit(conn, made, ["during", "before"], now=day(1))
    claims = take(conn, now=day(5))
    observe(conn, made, [seen("during", day(6)), seen("before", day(4))], now=day(7))
    finish(conn, claims, now=day(8))
    assert row(conn, "during")["changed"]
    assert not row(conn, "before")["changed"]
    assert requeue(conn, made) == 1


def test_t33_t46_the_cap_is_of_one_source(conn: Conn) -> None:
    first, second = source(conn), source(conn, "other")
    changed(conn, first, "abcde")
    changed(conn, second, "fg")
    assert requeue(conn, first, limit=3) == 3
    assert count_changed_waiting(conn, first) == 2
    assert count_changed_waiting(conn, second) == 2
    assert requeue(conn, first, limit=3) == 2


def test_t33_the_cap_holds_over_the_steps_of_a_cycle(conn: Conn) -> None:
    made = source(conn)
    changed(conn, made, "abcdef")
    cycle = begin(conn, made, now=day(20))
    queued = 0
    for _ in range(3):
        left = 4 - fence(conn, cycle).queued_updated_count
        step = requeue(conn, made, limit=min(left, 3))
        add(conn, cycle, queued_updated=step)
        queued += step
    assert queued == 4


@pytest.mark.parametrize("limit", [0, -1])
def test_t52_a_cap_of_nothing_admits_nothing_and_times_are_still_recorded(conn: Conn, limit: int) -> None:
    made = source(conn)
    (a,) = changed(conn, made, "a")
    assert requeue(conn, made, limit=limit) == 0
    observe(conn, made, [seen("a", day(9))], now=day(10))
    assert row(conn, a)["remote_modified_at"] == day(9)
    assert count_changed_waiting(conn, made) == 1


def test_t34_new_targets_do_not_use_the_cap_up(conn: Conn) -> None:
    made = source(conn)
    changed(conn, made, "a")
    assert observe(conn, made, [seen("n1"), seen("n2")], now=day(4)).queued_new_count == 2
    assert requeue(conn, made, limit=1) == 1


def test_t36_an_equal_time_never_qualifies(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], day(1), now=day(1))
    scan(conn, a, now=day(2))
    observe(conn, made, [seen("a", day(1))], now=day(3))
    assert requeue(conn, made) == 0


def test_t37_a_row_rests_since_its_completion(conn: Conn) -> None:
    made = source(conn)
    changed(conn, made, "a", completed=5, moved=5.1)
    rest = timedelta(hours=6)
    assert count_changed_waiting(conn, made, cooldown=rest, now=day(5.2)) == 0
    assert requeue(conn, made, cooldown=rest, at=5.2) == 0
    assert count_changed_waiting(conn, made) == 1
    assert requeue(conn, made, cooldown=rest, at=5.25) == 1


def test_t38_a_reserved_row_is_left_alone(conn: Conn) -> None:
    made = source(conn)
    (a,) = changed(conn, made, "a")
    admin.reserve(conn, [a], by="someone", period=timedelta(days=30), now=day(4))
    assert requeue(conn, made) == 0
    admin.unreserve(conn, [a])
    assert requeue(conn, made) == 1


@pytest.mark.parametrize("word", ["failed", "pending", "deferred", "in_progress", "unresolved", "retired"])
def test_t35_t39_to_t43_no_other_state_is_ever_promoted(conn: Conn, word: str) -> None:
    made = source(conn)
    (a,) = changed(conn, made, "a")
    requeue(conn, made, at=4)
    if word in {"failed", "deferred", "in_progress"}:
        (claim,) = take(conn, now=day(5))
        if word == "failed":
            fail(
                conn,
                [Failure(target_id=a, lease_token=claim.lease_token, code="x", message="", permanent=True)],
                now=day(5),
            )
        if word == "deferred":
            defer(conn, [Deferral(target_id=a, lease_token=claim.lease_token, reason="x", until=day(30))], now=day(5))
    elif word == "unresolved":
        admin.unresolve(conn, [a], reason="redirect")
    elif word == "retired":
        admin.retire(conn, [a], reason="operator")
    assert state(conn, a) == word
    before = row(conn, a)
    observe(conn, made, [seen("a", day(6))], admit=False, now=day(7))
    assert requeue(conn, made) == 0
    after = row(conn, a)
    assert after["state"] == word
    assert after["remote_modified_at"] == day(6)
    assert after["attempts"] == before["attempts"]


def test_t44_unchanged_and_invalid_times_promote_nothing(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], day(1), now=day(1))
    scan(conn, a, now=day(2))
    observe(conn, made, [seen("a", day(1))], now=day(3))
    observe(conn, made, [seen("a")], now=day(3))
    observe(conn, made, [seen("a", day(40))], now=day(3))
    assert requeue(conn, made) == 0


def test_t45_a_row_locked_elsewhere_is_passed_over(database_url: str) -> None:
    with psycopg.connect(database_url) as conn, psycopg.connect(database_url) as other:
        made = source(conn)
        first, *_ = changed(conn, made, "abc")
        conn.commit()
        other.execute("SELECT FROM target_hot WHERE id = %s FOR UPDATE", (first,))
        conn.execute("SET lock_timeout = '2s'")
        assert requeue(conn, made) == 2
        assert state(conn, first) is State.DONE


def test_t46_two_requeues_at_once_never_take_the_same_row(database_url: str) -> None:
    from threading import Thread  # noqa: PLC0415 -- one test needs it

    with psycopg.connect(database_url) as conn:
        made = source(conn)
        names = [f"r{n}" for n in range(60)]
        admit(conn, made, names, day(1), now=day(1))
        finish(conn, take(conn, now=day(2)), now=day(2))
        observe(conn, made, [seen(name, day(3)) for name in names], now=day(3))
        conn.commit()
    start = Barrier(3)
    counts: list[int] = []

    def go() -> None:
        with psycopg.connect(database_url) as conn:
            start.wait()
            for _ in range(10):
                counts.append(requeue(conn, made, limit=3))
                conn.commit()

    run([Thread(target=go) for _ in range(3)])
    assert sum(counts) == 60
    assert max(counts) <= 3


def test_t47_requeue_resets_the_retry_and_scheduling_fields_only(conn: Conn) -> None:
    made = source(conn)
    (a,) = changed(conn, made, "a")
    before = row(conn, a)
    requeue(conn, made, at=4)
    after = row(conn, a)
    different = {name for name in before if before[name] != after[name]}
    assert different <= {"state", "admission", "attempts", "deferrals", "not_before", "rank", "changed"}
    assert (after["state"], after["admission"], after["attempts"], after["not_before"]) == (
        "pending",
        "updated",
        0,
        day(4),
    )
    assert after["completed_at"] == before["completed_at"]


def test_t48_a_requeued_row_is_claimed_by_the_ordinary_claim(conn: Conn) -> None:
    made = source(conn)
    (a,) = changed(conn, made, "a")
    requeue(conn, made, at=4)
    (claim,) = take(conn, now=day(5))
    assert (claim.target_id, claim.admission.value, claim.attempts) == (a, "updated", 1)


def test_t76_the_oldest_change_comes_first_then_the_id(conn: Conn) -> None:
    made = source(conn)
    ids = dict(zip("abcd", admit(conn, made, "abcd", day(1), now=day(1)), strict=True))
    finish(conn, take(conn, now=day(2)), now=day(2))
    for number, names in ((3, "c"), (4, "ab"), (5, "d")):
        observe(conn, made, [seen(name, day(number)) for name in names], now=day(number))
    observe(conn, made, [seen("c", day(9))], now=day(9))  # a newer change does not push it back
    order: list[int] = []
    for _ in range(4):
        assert requeue(conn, made, limit=1) == 1
        (claim,) = take(conn, now=day(21))
        order.append(claim.target_id)
    assert order == [ids["c"], ids["a"], ids["b"], ids["d"]]


def test_t32_a_step_that_fails_writes_neither_times_nor_requeues(database_url: str) -> None:
    with psycopg.connect(database_url) as conn:
        made = source(conn)
        (a,) = changed(conn, made, "a")
        conn.commit()
        observe(conn, made, [seen("a", day(9))], now=day(10))
        requeue(conn, made)
        conn.rollback()
        assert (state(conn, a), row(conn, a)["remote_modified_at"]) == (State.DONE, day(3))


def test_t56_t57_updated_admissions_are_counted_apart_from_new_ones(conn: Conn) -> None:
    made = source(conn)
    changed(conn, made, "ab")
    cycle = begin(conn, made, now=day(9))
    counts = observe(
        conn, made, [seen("a", day(4)), seen("b", day(4)), seen("n", day(4)), seen("m")], cycle_id=cycle, now=day(9)
    )
    add(conn, cycle, counts, queued_updated=requeue(conn, made, limit=1))
    stored = conn.execute(
        "SELECT fetched_count, known_count, queued_new_count, queued_updated_count, missing_timestamp_count, "
        "moved_count FROM source_cycles"
    ).fetchone()
    assert stored is not None
    assert tuple(stored) == (4, 2, 2, 1, 1, 2)


def test_t59_yield_of_updated_scans_can_be_compared_with_new_ones(conn: Conn) -> None:
    made = source(conn)
    changed(conn, made, "ab")
    requeue(conn, made, at=4)
    claims = take(conn, now=day(5))
    complete(
        conn,
        [
            Completion(
                target_id=each.target_id,
                lease_token=each.lease_token,
                reports=(ScanReport(scanner="k", outcome=ScanOutcome.CLEAN, complete=True, coverage=None),),
            )
            for each in claims
        ],
        now=day(6),
    )
    found = {
        (each.source, each.admission.value): each.scans for each in yields(conn, period=timedelta(days=30), now=day(7))
    }
    assert found == {("acme", "new"): 2, ("acme", "updated"): 2}


def test_t63_switching_off_leaves_pending_rows_to_finish(conn: Conn) -> None:
    made = source(conn)
    changed(conn, made, "ab")
    requeue(conn, made, limit=1, at=4)
    assert requeue(conn, made, limit=0) == 0
    assert finish(conn, take(conn, now=day(5)), now=day(5)) == [State.DONE]


def test_t79_a_worker_that_lost_its_lease_cannot_complete(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], now=day(1))
    late = take(conn, now=day(2))
    assert reap(conn, now=day(3)).pending == 1
    assert finish(conn, late, now=day(3)) == [None]
    assert state(conn, a) is State.PENDING
    (again,) = take(conn, now=day(4))
    assert again.lease_token > late[0].lease_token
    assert finish(conn, late, now=day(4)) == [None]
    assert finish(conn, [again], now=day(4)) == [State.DONE]


def test_a_changed_row_survives_a_claim_that_never_completed(conn: Conn) -> None:
    """The snapshot of a claim that vanished covers nothing: retired and seen again, the row is still owed."""
    made = source(conn)
    (a,) = changed(conn, made, "a")
    requeue(conn, made, at=4)
    take(conn, now=day(5))
    reap(conn, now=day(6))
    admin.retire(conn, [a], reason="absent", now=day(7))
    observe(conn, made, [seen("a", day(3))], now=day(8))
    assert state(conn, a) is State.PENDING


def test_a_fenced_cycle_observes_nothing(conn: Conn) -> None:
    made = source(conn)
    cycle = begin(conn, made)
    begin(conn, made)  # another process took over
    with pytest.raises(CycleFenced):
        observe(conn, made, [seen("a")], cycle_id=cycle)
    assert conn.execute("SELECT FROM target").fetchone() is None


def test_t66_a_request_needs_ids_and_state_alone_never_requeues(conn: Conn) -> None:
    source(conn)
    assert request(conn, []) == []


def test_policies_order_what_changed(conn: Conn) -> None:
    made = source(conn, policy="newest_change")
    ids = dict(zip("ab", changed(conn, made, "ab"), strict=True))
    observe(conn, made, [seen("b", day(8))], now=day(8))
    requeue(conn, made, limit=1)
    assert state(conn, ids["b"]) is State.PENDING
    source(conn, policy="oldest_change")  # another policy orders what waits anew
    observe(conn, made, [seen("c", day(1))], now=day(8))
    assert row(conn, ids["a"])["sort_key"] == pytest.approx(day(3).timestamp())


@pytest.mark.parametrize("policy", ["oldest_change", "newest_change", "most_overdue", "value", "aged_value"])
def test_every_policy_has_a_key_for_every_changed_row(conn: Conn, policy: str) -> None:
    made = source(conn, policy=policy)
    changed(conn, made, "abc")
    assert requeue(conn, made) == 3

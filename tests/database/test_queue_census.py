"""The census: counts, listings with filters, why a target is where it is."""

from datetime import timedelta
from typing import Any

import pytest
from psycopg import Connection

from resweep.queue import admin, sources
from resweep.queue.census import Filter, count_listing, counts, explain, find, get, history, listing, workers
from resweep.queue.intake import observe
from resweep.queue.leases import register_worker
from resweep.queue.outcomes import Failure, Release, fail, release
from resweep.schema.records import Admission, State, WorkerIdentity
from tests.support.queue import WORKER, admit, day, finish, seen, source, take

Conn = Connection[Any]


def test_counts_by_source_and_state(conn: Conn) -> None:
    made = source(conn)
    source(conn, "empty")
    admit(conn, made, "abcd", day(1), now=day(1))
    a, b, *_ = take(conn, 3, now=day(2))
    finish(conn, [a], now=day(2))
    fail(
        conn,
        [Failure(target_id=b.target_id, lease_token=b.lease_token, code="x", message="", permanent=True)],
        now=day(2),
    )
    observe(conn, made, [seen("a", day(2))], now=day(2))
    acme, empty = counts(conn, now=day(3))
    assert {state: n for state, n in acme.by_state.items() if n} == {
        State.PENDING: 1,
        State.IN_PROGRESS: 1,
        State.DONE: 1,
        State.FAILED: 1,
    }
    assert (acme.claimable, acme.oldest_waiting, acme.changed_waiting) == (1, timedelta(days=2), 1)
    assert (empty.source, sum(empty.by_state.values()), empty.claimable, empty.oldest_waiting) == ("empty", 0, 0, None)


def test_a_listing_pages_by_key(conn: Conn) -> None:
    ids = admit(conn, source(conn), [f"r{n}" for n in range(7)], now=day(1))
    seen_ids: list[int] = []
    after, pages = None, 0
    while True:
        page = listing(conn, Filter(), after=after, limit=3)
        seen_ids += [each.target_id for each in page.rows]
        pages += 1
        if page.after is None:
            break
        after = page.after
    assert (seen_ids, pages) == (ids, 3)


def test_filters_narrow(conn: Conn) -> None:
    made, other = source(conn), source(conn, "other")
    admit(conn, made, ["alpha", "beta", "100%_x"], day(1), now=day(1))
    admit(conn, other, ["alpha"], now=day(5))
    claims = {each.name: each for each in take(conn, 3, sources=[made], now=day(2))}
    a, b = claims["alpha"], claims["beta"]
    release(conn, [Release(target_id=claims["100%_x"].target_id, lease_token=1)], now=day(2))
    finish(conn, [a], now=day(2))
    fail(
        conn,
        [Failure(target_id=b.target_id, lease_token=b.lease_token, code="boom", message="m", permanent=True)],
        now=day(2),
    )
    observe(conn, made, [seen("alpha", day(3))], now=day(3))

    def names(**parts: Any) -> list[str]:
        wanted = Filter(**parts)
        found = [each.name for each in listing(conn, wanted, now=day(6)).rows]
        assert count_listing(conn, wanted, now=day(6)) == len(found)
        return found

    assert names(states=(State.FAILED,)) == ["beta"]
    assert names(states=(State.FAILED, State.DONE)) == ["alpha", "beta"]
    assert names(sources=(other,)) == ["alpha"]
    assert names(error_code="boom") == ["beta"]
    assert names(name="lph") == ["alpha", "alpha"]
    assert names(name="%_") == ["100%_x"]
    assert names(changed=True) == ["alpha"]
    assert names(admission=Admission.NEW, sources=(other,)) == ["alpha"]
    assert names(older_than=timedelta(days=2)) == ["100%_x", "alpha", "beta"]
    assert names(states=(State.RETIRED,)) == []


def test_a_target_is_found_by_its_former_name(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("old", provider_id="1")])
    observe(conn, made, [seen("new", provider_id="1")])
    assert [each.name for each in find(conn, "old")] == ["new"]
    assert [each.name for each in find(conn, "new", source_id=made)] == ["new"]
    assert find(conn, "nobody") == []


def test_explain_says_why_and_when_next(conn: Conn) -> None:
    made = source(conn)
    ids = admit(conn, made, "abc", day(1), now=day(1))

    def why(target: int, at: float = 2) -> tuple[str, Any, int | None]:
        told = explain(conn, target, now=day(at))
        assert told is not None
        return told.code, told.next_at, told.ahead

    assert why(ids[2]) == ("waiting", day(1), 2)
    admin.defer(conn, [ids[2]], reason="too_large", until=day(5))
    assert why(ids[2]) == ("deferred", day(5), 2)
    admin.reserve(conn, [ids[1]], by="kim", period=timedelta(days=3), now=day(1))
    assert why(ids[1])[:2] == ("reserved", day(4))
    sources.pause(conn, made, reason="x", until=day(9))
    assert why(ids[0])[:2] == ("source_paused", day(9))
    sources.resume(conn, made)
    (claim,) = take(conn, now=day(2))
    assert why(ids[0])[:2] == ("scanning", day(2) + timedelta(minutes=1))
    assert why(ids[0], 3)[0] == "lease_expired"
    fail(
        conn,
        [Failure(target_id=ids[0], lease_token=claim.lease_token, code="x", message="", delay=timedelta(days=1))],
        now=day(2),
    )
    assert why(ids[0])[:2] == ("backing_off", day(3))
    finish(conn, take(conn, now=day(3)), now=day(3))
    assert why(ids[0], 4) == ("covered", None, None)
    observe(conn, made, [seen("a", day(3))], now=day(4))
    assert why(ids[0], 4)[0] == "changed_waiting"
    admin.retire(conn, [ids[0]], reason="dropped")
    assert why(ids[0], 4)[0] == "retired"
    told = explain(conn, ids[0])
    assert told is not None
    assert [each.outcome for each in told.history] == ["done", "retried"]
    assert explain(conn, 10**12) is None
    assert get(conn, 10**12) is None


def test_history_pages_and_is_purged_by_age(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, "a", now=day(1))
    for number in range(2, 6):
        finish(conn, take(conn, now=day(number)), now=day(number))
        conn.execute("UPDATE target_hot SET state = 'pending'")
    assert [each.lease_token for each in history(conn, a, limit=2)] == [4, 3]
    assert [each.lease_token for each in history(conn, a, before=3)] == [2, 1]
    assert admin.purge_history(conn, older_than=timedelta(days=2), now=day(5.5)) == 2
    assert len(history(conn, a)) == 2


def test_workers_with_their_leases(conn: Conn) -> None:
    register_worker(conn, WorkerIdentity(uuid=WORKER, host="h", pid=7), slots=2)
    admit(conn, source(conn), "ab", now=day(1))
    take(conn, 2, now=day(2))
    (shown,) = workers(conn)
    assert (shown["host"], shown["pid"], shown["slots"], shown["leases"]) == ("h", 7, 2, 2)


@pytest.mark.parametrize("kind", ["github", "git"])
def test_registering_twice_writes_nothing(conn: Conn, kind: str) -> None:
    first = source(conn, kind=kind)
    conn.commit()
    assert source(conn, kind=kind) == first
    found = conn.execute("SELECT pg_current_xact_id_if_assigned() AS x").fetchone()
    assert found in ((None,), {"x": None})
    with pytest.raises(ValueError, match="of kind"):
        source(conn, kind="other")
    assert source(conn, kind=kind, max_in_progress=3) == first
    assert sources.list_sources(conn)[0].max_in_progress == 3
    assert sources.find(conn, "acme") == first
    assert sources.find(conn, "nobody") is None

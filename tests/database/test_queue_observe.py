"""Observe: what a listing says comes in; an unchanged target writes nothing; times only move forward."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from threading import Thread
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from resweep.queue.intake import distinct, observe
from resweep.schema.records import ObserveCounts, State, TimeState
from tests.support.queue import admit, day, finish, row, scan, seen, source, state, take, target_id, versions

Conn = Connection[Any]


def test_t01_a_target_has_one_row_for_life_by_source_and_name(conn: Conn) -> None:
    first, second = source(conn), source(conn, "other")
    observe(conn, first, [seen("a"), seen("b")])
    observe(conn, first, [seen("a", day(1))])
    observe(conn, second, [seen("a")])
    assert target_id(conn, "a", first) != target_id(conn, "a", second)
    assert conn.execute("SELECT count(*) AS n FROM target").fetchone() in ((3,), {"n": 3})


def test_t07_a_missing_time_admits_a_new_target_and_is_counted(conn: Conn) -> None:
    counts = observe(conn, source(conn), [seen("a")])
    assert counts == ObserveCounts(fetched_count=1, queued_new_count=1, missing_timestamp_count=1)
    assert state(conn, "a") is State.PENDING
    assert row(conn, "a")["admission"] == "new"
    assert row(conn, "a")["remote_modified_at"] is None


@pytest.mark.parametrize(
    ("at", "word"),
    [
        (None, TimeState.INVALID),
        (datetime(2026, 3, 1), TimeState.VALID),  # noqa: DTZ001 - a time without an offset is malformed (T10)
        (datetime(1989, 12, 31, tzinfo=UTC), TimeState.VALID),
        (day(2) + timedelta(seconds=601), TimeState.VALID),
        (datetime(9999, 1, 1, tzinfo=UTC), TimeState.VALID),
    ],
)
def test_t08_t10_t11_a_malformed_or_far_time_is_counted_and_never_stored(
    conn: Conn, at: datetime | None, word: TimeState
) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], day(1), now=day(1))
    scan(conn, a, now=day(1.5))
    counts = observe(conn, made, [seen("a", at, word=word), seen("new", at, word=word)], now=day(2))
    assert counts.invalid_timestamp_count == 2
    assert counts.queued_new_count == 1
    assert row(conn, "new")["remote_modified_at"] is None
    assert row(conn, a)["remote_modified_at"] == day(1)
    assert not row(conn, a)["changed"]


def test_t11_a_time_inside_the_skew_is_taken(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", day(2) + timedelta(seconds=600))], now=day(2))
    assert row(conn, "a")["remote_modified_at"] == day(2) + timedelta(seconds=600)


def test_t11_the_skew_is_measured_by_the_databases_clock(conn: Conn) -> None:
    counts = observe(conn, source(conn), [seen("a", datetime.now(UTC) + timedelta(hours=1))])
    assert counts.invalid_timestamp_count == 1


def test_t10_offsets_are_normalised_before_comparing(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", day(1))], now=day(2))
    same = day(1).astimezone(timezone(timedelta(hours=9)))
    counts = observe(conn, made, [seen("a", same)], now=day(2))
    assert (counts.moved_count, counts.older_timestamp_count) == (0, 0)


def test_t20_a_new_revision_with_an_older_time_moves_no_time_back(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", day(5), revision=b"r1")], now=day(6))
    observe(conn, made, [seen("a", day(4), revision=b"r2")], now=day(6))
    found = row(conn, "a")
    assert (found["remote_modified_at"], bytes(found["observed_revision"])) == (day(5), b"r2")


def test_t09_t20_an_older_time_is_counted_and_moves_nothing_back(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", day(3))], now=day(9))
    conn.commit()
    before = versions(conn)
    counts = observe(conn, made, [seen("a", day(2))], now=day(9))
    assert counts.older_timestamp_count == 1
    assert (counts.moved_count, counts.known_count) == (0, 1)
    assert versions(conn) == before


def test_t24_updates_while_pending_add_nothing_but_the_time(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], day(1), now=day(2))
    for number in (3, 4, 5):
        assert observe(conn, made, [seen("a", day(number))], now=day(9)).moved_count == 1
    assert state(conn, a) is State.PENDING
    assert row(conn, a)["remote_modified_at"] == day(5)
    scan(conn, a, now=day(9))
    assert not row(conn, a)["changed"]


def test_an_unchanged_known_target_writes_nothing(conn: Conn) -> None:
    made = source(conn, kind="github")
    page = [seen(f"org/r{n}", day(1), provider_id=str(n), archived=False, topics=["x"]) for n in range(50)]
    page += [seen(f"org/d{n}", revision=bytes([n])) for n in range(50)]
    observe(conn, made, page, now=day(2))
    conn.commit()
    before = versions(conn)
    sequence = conn.execute("SELECT last_value FROM target_id_seq").fetchone()
    counts = observe(conn, made, page, now=day(3))
    conn.commit()
    assert counts == ObserveCounts(fetched_count=100, known_count=100)
    assert versions(conn) == before
    assert conn.execute("SELECT last_value FROM target_id_seq").fetchone() == sequence


def test_a_large_unchanged_step_is_no_write_to_the_database(conn: Conn) -> None:
    made = source(conn)
    page = [seen(f"r{n}", day(1)) for n in range(1000)]
    observe(conn, made, page, now=day(2))
    conn.commit()
    assert observe(conn, made, page, now=day(3)).known_count == 1000
    # A transaction that wrote anything, or locked a row, has a number.
    assert list(conn.execute("SELECT pg_current_xact_id_if_assigned() AS x").fetchall()) in ([(None,)], [{"x": None}])


def test_the_same_target_twice_in_a_batch_is_one_record_by_name_and_by_id() -> None:
    page = [
        seen("a", day(1), provider_id="1"),
        seen("b", day(3), provider_id="1"),
        seen("c", day(2)),
        seen("c", day(4)),
        seen("c"),
        seen("d", provider_id="7"),
        seen("d", provider_id="8"),
    ]
    kept = [(each.name, each.remote_modified_at) for each in distinct(page, folded=False)]
    assert kept == [("b", day(3)), ("c", day(4)), ("d", None)]


def test_names_are_compared_folded_where_the_provider_does_so(conn: Conn) -> None:
    for kind, rows in (("github", 1), ("gitlab", 1), ("dockerhub", 1), ("huggingface", 2), ("git", 2)):
        made = source(conn, kind, kind)
        counts = observe(conn, made, [seen("Org/Repo"), seen("org/repo")])
        assert counts.queued_new_count == rows, kind
        assert observe(conn, made, [seen("ORG/REPO")], admit=False).known_count == (1 if rows == 1 else 0), kind


def test_a_digest_that_differs_makes_the_time_and_an_equal_one_writes_nothing(conn: Conn) -> None:
    made = source(conn, kind="git")
    counts = observe(conn, made, [seen("a", revision=b"one")], now=day(1))
    assert counts == ObserveCounts(fetched_count=1, queued_new_count=1)
    assert row(conn, "a")["remote_modified_at"] == day(1)
    scan(conn, target_id(conn, "a"), now=day(1))
    conn.commit()
    before = versions(conn)
    assert observe(conn, made, [seen("a", revision=b"one")], now=day(2)).moved_count == 0
    assert versions(conn) == before
    assert observe(conn, made, [seen("a", revision=b"two")], now=day(3)).moved_count == 1
    assert row(conn, "a")["remote_modified_at"] == day(3)
    assert row(conn, "a")["changed"]


def test_a_digests_time_is_at_least_the_stored_one_and_a_microsecond(conn: Conn) -> None:
    made = source(conn, kind="git")
    observe(conn, made, [seen("a", revision=b"one")], now=day(5))
    observe(conn, made, [seen("a", revision=b"two")], now=day(4))
    assert row(conn, "a")["remote_modified_at"] == day(5) + timedelta(microseconds=1)


def test_a_digests_time_is_the_databases_clock(conn: Conn) -> None:
    made = source(conn, kind="git")
    observe(conn, made, [seen("a", revision=b"one")])
    found = conn.execute("SELECT clock_timestamp() - remote_modified_at AS age FROM target_queue").fetchone()
    assert found is not None
    (age,) = found
    assert timedelta(0) <= age < timedelta(minutes=1)


def test_backlog_first_observe_moves_times_and_admits_nothing(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], day(1), now=day(2))
    counts = observe(conn, made, [seen("a", day(3)), seen("b", day(3))], admit=False, now=day(4))
    assert (counts.moved_count, counts.queued_new_count, counts.known_count) == (1, 0, 1)
    assert row(conn, a)["remote_modified_at"] == day(3)


def test_cold_columns_follow_the_provider(conn: Conn) -> None:
    made = source(conn)
    observe(conn, made, [seen("a", archived=False)])
    observe(conn, made, [seen("a", archived=True)])
    assert row(conn, "a")["attributes"] == {"archived": True}
    observe(conn, made, [seen("a", archived=True, provider_id="9")])
    assert row(conn, "a")["provider_id"] == "9"


def test_hostile_names_come_back_as_they_were(conn: Conn) -> None:
    made = source(conn)
    names = [
        'quote"d',
        "back\\slash",
        "{curly,brace}",
        "NULL",
        "",
        " ",
        "new\nline",
        "ünï",
        "a,b",
        "\\x00",
        "'; DROP TABLE target; --",
    ]
    page = [seen(name, at=day(1), note=name) for name in names if name]
    observe(conn, made, page, now=day(2))
    stored = {row(conn, each.name)["display_name"] for each in page}
    assert stored == {each.display_name for each in page}
    assert observe(conn, made, page, now=day(3)).known_count == len(page)


def test_an_unknown_source_is_refused(conn: Conn) -> None:
    with pytest.raises(LookupError, match="register it"):
        observe(conn, 999, [seen("a")])


def test_a_claim_in_progress_keeps_its_snapshot(conn: Conn) -> None:
    made = source(conn)
    (a,) = admit(conn, made, ["a"], day(1), now=day(2))
    claims = take(conn, now=day(2))
    observe(conn, made, [seen("a", day(3))], now=day(4))
    assert row(conn, a)["scan_remote_modified_at"] == day(1)
    assert state(conn, a) is State.IN_PROGRESS
    finish(conn, claims, now=day(5))
    assert row(conn, a)["changed"]


def test_two_observers_of_one_new_target_make_one_row(database_url: str) -> None:
    with psycopg.connect(database_url) as setup:
        made = source(setup)
        setup.commit()
    counts: list[ObserveCounts] = []

    def look(names: list[str]) -> None:
        with psycopg.connect(database_url) as conn:
            counts.append(observe(conn, made, [seen(name, day(1)) for name in names]))

    names = [f"r{n}" for n in range(200)]
    threads = [Thread(target=look, args=(order,)) for order in (names, names[::-1], names)]
    run(threads)
    assert sum(each.queued_new_count for each in counts) == 200
    assert [each.fetched_count for each in counts] == [200] * 3


def test_observing_and_completing_the_same_rows_never_deadlock(database_url: str) -> None:
    names = [f"r{n:03}" for n in range(100)]
    with psycopg.connect(database_url) as setup:
        made = source(setup)
        admit(setup, made, names)
        setup.commit()
    moved: list[int] = []

    def look() -> None:
        with psycopg.connect(database_url) as conn:
            for number in range(20):
                at = day(1) + timedelta(minutes=number)
                order = names if number % 2 else names[::-1]
                moved.append(observe(conn, made, [seen(name, at) for name in order]).moved_count)
                conn.commit()

    def work() -> None:
        with psycopg.connect(database_url) as conn:
            for _ in range(20):
                claims = take(conn)
                conn.commit()
                finish(conn, claims[::-1])
                conn.commit()
                conn.execute(
                    "UPDATE target_hot SET state = 'pending' WHERE id IN "
                    "(SELECT id FROM target_hot WHERE state = 'done' ORDER BY id FOR UPDATE)"
                )
                conn.commit()

    run([Thread(target=look), Thread(target=work)])
    assert sum(moved) == 20 * 100


def run(threads: list[Thread]) -> None:
    """Run threads to their end; what one raises fails the test."""
    failed: list[BaseException] = []
    for thread in threads:
        original = thread.run

        def guarded(inner: Callable[[], None] = original) -> None:
            try:
                inner()
            except BaseException as fault:  # noqa: BLE001 - told to the test below
                failed.append(fault)

        thread.run = guarded  # type: ignore[method-assign]
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed, failed

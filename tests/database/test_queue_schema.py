"""The schema's own guards: impossible combinations are impossible; every statement file is understood by the server."""

import re
from importlib.resources import files
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from tests.support.queue import admit, day, finish, row, source, take

Conn = Connection[Any]

STATEMENTS = sorted(entry.name for entry in files("resweep.queue.sql").iterdir() if entry.name.endswith(".sql"))


IMPOSSIBLE = [
    "state = 'in_progress'",
    "state = 'in_progress', lease_owner = gen_random_uuid(), lease_expires_at = now()",
    "lease_owner = gen_random_uuid()",
    "lease_expires_at = now()",
    "state = 'done'",
    "state = 'deferred'",
    "deferred_reason = 'x'",
    "state = 'retired'",
    "retire_reason = 'x'",
    "reserved_by = 'x'",
    "reserved_until = now()",
    "scan_request_no = 1",
    "state = 'done', completed_at = now(), request_no = 1",
    "state = 'done', completed_at = now(), remote_modified_at = now() + interval '1 day'",
    "scan_remote_modified_at = now()",
    "attempts = -1",
    "priority = 3",
    "priority = -1",
    "not_before = NULL",
    "not_before = 'infinity'",
    "remote_modified_at = '1989-12-31'",
    "remote_modified_at = 'infinity'",
    "changed_at = now()",
    "state = 'unheard_of'",
]


def test_impossible_combinations_are_refused(conn: Conn) -> None:
    admit(conn, source(conn), "a", now=day(1))
    taken: list[str] = []
    for assignment in IMPOSSIBLE:
        try:
            with conn.transaction():
                conn.execute(f"UPDATE target_hot SET {assignment}".encode())
            taken.append(assignment)
        except (psycopg.errors.IntegrityError, psycopg.errors.DataError):
            continue
    assert taken == []


def test_a_leased_row_cannot_be_reserved(conn: Conn) -> None:
    admit(conn, source(conn), "a", now=day(1))
    take(conn, now=day(2))
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("UPDATE target_hot SET reserved_by = 'x', reserved_until = now()")


@pytest.mark.parametrize(
    ("remote", "scanned", "started", "completed", "changed"),
    [
        (3, 2, 9, 9, True),
        (2, 2, 1, 1, False),
        (1, 2, 1, 1, False),
        (3, None, 2, 9, True),
        (2, None, 2, 1, False),
        (3, None, None, 2, True),
        (2, None, None, 2, False),
        (None, 1, 1, 1, None),
        (3, None, None, None, None),
    ],
)
def test_t26_t30_t31_t36_the_one_meaning_of_changed(
    conn: Conn,
    remote: int | None,
    scanned: int | None,
    started: int | None,
    completed: int | None,
    changed: bool | None,
) -> None:
    times = [None if each is None else day(each) for each in (remote, scanned, started, completed)]
    found = conn.execute(
        "SELECT target_changed(%s::timestamptz, %s::timestamptz, %s::timestamptz, %s::timestamptz) AS x", times
    ).fetchone()
    assert found in ((changed,), {"x": changed})


def test_t19_t61_the_marks_are_nullable_and_the_eligibility_index_is_partial(conn: Conn) -> None:
    found = conn.execute(
        "SELECT column_name AS n FROM information_schema.columns WHERE table_name = 'target_hot' "
        "AND is_nullable = 'YES' AND column_name IN ('remote_modified_at', 'scan_remote_modified_at')"
    ).fetchall()
    assert len(found) == 2
    index = conn.execute(
        "SELECT pg_get_expr(indpred, indrelid) AS p FROM pg_index WHERE indexrelid = 'target_changed_waiting'::regclass"
    ).fetchone()
    assert index is not None
    assert "target_changed" in str(index)


def test_lease_expiry_lies_in_no_index_so_a_heartbeat_is_heap_only(conn: Conn) -> None:
    found = conn.execute(
        "SELECT indexdef AS d FROM pg_indexes WHERE tablename = 'target_hot' AND indexdef LIKE '%lease_expires_at%'"
    ).fetchall()
    assert found == []


def test_the_view_shows_the_names_of_the_rules(conn: Conn) -> None:
    admit(conn, source(conn), "a", now=day(1))
    finish(conn, take(conn, now=day(2)), now=day(2))
    names = {
        "source",
        "normalized_target",
        "state",
        "not_before",
        "lease_owner",
        "lease_token",
        "lease_expires_at",
        "attempts",
        "completed_at",
        "priority",
        "scan_remote_modified_at",
        "deferred_reason",
        "last_error_code",
        "last_error",
        "reserved_by",
        "reserved_until",
        "retire_reason",
        "remote_modified_at",
        "scan_started_at",
        "request_no",
        "scan_request_no",
        "requested_at",
        "observed_revision",
        "recheck_at",
        "provider_id",
        "changed_at",
        "moves",
        "sort_key",
    }
    assert names <= set(row(conn, "a"))


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_says_what_and_why(name: str) -> None:
    assert files("resweep.queue.sql").joinpath(name).read_text("utf-8").startswith("-- ")


def test_every_statement_file_is_understood_by_the_server(conn: Conn) -> None:
    conn.execute("CREATE TEMPORARY TABLE walk_seen (id bigint PRIMARY KEY)")
    refused = {}
    for name in STATEMENTS:
        text = files("resweep.queue.sql").joinpath(name).read_text("utf-8")
        places: dict[str, str] = {}

        def place(found: re.Match[str], places: dict[str, str] = places) -> str:
            return places.setdefault(found[1], f"${len(places) + 1}")

        query = re.sub(r"%\((\w+)\)s", place, text.replace("%%", "%"))
        try:
            with conn.transaction():
                # PREPARE takes no utility statement; those have no parameters and are run.
                utility = name in {"walk_seen_make.sql", "walk_seen_clear.sql"}
                conn.execute((query if utility else f"PREPARE checked AS {query}").encode())
                if not utility:
                    conn.execute("DEALLOCATE checked")
        except psycopg.Error as fault:
            refused[name] = str(fault)
    assert refused == {}


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_reads_a_clock_that_cannot_be_handed_in(name: str) -> None:
    code = "\n".join(
        line
        for line in files("resweep.queue.sql").joinpath(name).read_text("utf-8").splitlines()
        if not line.lstrip().startswith("--")
    )
    bare = re.sub(r"coalesce\(%\(now\)s::timestamptz, (now|clock_timestamp)\(\)\)", "", code)
    if name == "announce.sql":  # a worker's nap, never a row's rule
        return
    assert not re.search(r"\b(now|clock_timestamp|current_timestamp|statement_timestamp)\b\s*\(", bare)

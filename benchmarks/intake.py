"""Figures 1 to 3: observing known and new targets against the least that plain SQL can do."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import psycopg

from resweep.queue.intake import observe
from resweep.schema.records import Observation

from .measure import Cost, Result, counted, interleave, median, ratio, settle
from .run import Run
from .table import UNCHANGED, add_source, fill, observations, text, tidy

FIGURES = frozenset({"1", "2", "3"})
_BATCH = 1_000
_NEWER_EVERY = 100
Session = psycopg.Connection[Any]
_COPY = "COPY stage (normalized_target, display_name, address, provider_id, remote_modified_at) FROM STDIN"


def measure(run: Run) -> Iterator[Result]:
    """Figures 1 to 3."""
    size, part = run.size, max(10_000, run.size // 10)
    with run.server.database("intake") as conninfo, psycopg.connect(conninfo, autocommit=True) as watch:
        source = add_source(watch)
        fill(watch, source_id=source, first=1, count=size, state="done")
        tidy(watch)
        if run.only & {"1", "2"}:
            yield from _known(run, conninfo, watch, source, size, part)
        if "3" in run.only:
            yield from _new(run, conninfo, watch, source, size, part)


def _known(run: Run, conninfo: str, watch: Session, source: int, size: int, part: int) -> Iterator[Result]:
    def slice_of(turn: int) -> list[Observation]:
        first = 1 + turn * part % size
        newer = UNCHANGED + timedelta(days=1 + turn)
        return observations(range(first, first + part), _NEWER_EVERY, newer)

    ours_side = _side(conninfo, watch, slice_of, lambda conn, page: _ours(conn, source, page))
    raw_side = _side(conninfo, watch, slice_of, lambda conn, page: _raw(conn, source, page, "raw_newer"))
    # Each side gets slices of its own: the same number of rows move on both.
    seen = interleave({"ours": lambda n: ours_side(2 * n), "raw": lambda n: raw_side(2 * n + 1)}, run.repetitions)
    yield Result(
        number="1",
        what="observe, 99 % unchanged, batches of 1,000 ÷ raw anti-join",
        value=ratio([cost.rate for cost in seen["ours"]], [cost.rate for cost in seen["raw"]]),
        floor=0.5,
        goal=0.7,
        more_is_better=True,
        detail=_rates(seen["ours"], seen["raw"]),
    )
    yield from _untouched(conninfo, watch, source, size, part, run.repetitions)


def _untouched(conninfo: str, watch: Session, source: int, size: int, part: int, repetitions: int) -> Iterator[Result]:
    """Figure 2: what a wholly unchanged page writes."""
    row = watch.execute(
        "SELECT array_agg(id) FROM target_hot WHERE source_id = %s AND id <= %s AND remote_modified_at = %s",
        (source, size, UNCHANGED),
    ).fetchone()
    unchanged: list[int] = row[0] if row else []
    numbers = unchanged[:part]
    side = _side(conninfo, watch, lambda _: observations(numbers), lambda conn, page: _ours(conn, source, page))
    costs = [side(turn) for turn in range(repetitions)]
    for what, unit, values, bound in (
        ("dead versions", "", [cost.dead_rows / cost.items for cost in costs], 0.0),
        ("WAL", "B", [cost.wal_bytes / cost.items for cost in costs], 5.0),
        ("statements", "", [cost.statements / cost.items for cost in costs], 0.005),
    ):
        yield Result(
            number="2",
            what=f"per unchanged row: {what}",
            value=median(values),
            floor=bound,
            goal=bound,
            more_is_better=False,
            unit=unit,
        )


def _new(run: Run, conninfo: str, watch: Session, source: int, size: int, part: int) -> Iterator[Result]:
    def slice_of(turn: int) -> list[Observation]:
        first = size + 1 + turn * part
        return observations(range(first, first + part))

    ours_side = _side(conninfo, watch, slice_of, lambda conn, page: _ours(conn, source, page))
    raw_side = _side(conninfo, watch, slice_of, lambda conn, page: _raw(conn, source, page, "raw_new"))
    seen = interleave({"ours": lambda n: ours_side(2 * n), "raw": lambda n: raw_side(2 * n + 1)}, run.repetitions)
    yield Result(
        number="3",
        what="observe new rows, batches of 1,000 ÷ raw COPY",
        value=ratio([cost.rate for cost in seen["ours"]], [cost.rate for cost in seen["raw"]]),
        floor=0.4,
        goal=0.7,
        more_is_better=True,
        detail=_rates(seen["ours"], seen["raw"]),
    )


def _side(
    conninfo: str,
    watch: Session,
    slice_of: Callable[[int], list[Observation]],
    step: Callable[[Session, Sequence[Observation]], None],
) -> Callable[[int], Cost]:
    """One side: a slice of observations in batches, a transaction each."""

    def turn(number: int) -> Cost:
        pages = slice_of(number)
        with psycopg.connect(conninfo) as conn:
            conn.execute(text("raw_stage"))
            conn.commit()
            step(conn, pages[:_BATCH])  # prepares the statements on both sides
            conn.rollback()
            settle(watch)
            with counted(watch, len(pages)) as cost:
                for start in range(0, len(pages), _BATCH):
                    step(conn, pages[start : start + _BATCH])
                    conn.commit()
        return cost

    return turn


def _ours(conn: Session, source: int, page: Sequence[Observation]) -> None:
    observe(conn, source, page)


def _raw(conn: Session, source: int, page: Sequence[Observation], statement: str) -> None:
    with conn.cursor() as cursor:
        with cursor.copy(_COPY) as copy:
            for item in page:
                copy.write_row((item.name, item.display_name, item.address, item.provider_id, item.remote_modified_at))
        cursor.execute(text(statement), {"source_id": source})


def _rates(ours: Sequence[Cost], raw: Sequence[Cost]) -> dict[str, object]:
    return {
        "ours, rows/s": median([cost.rate for cost in ours]),
        "raw, rows/s": median([cost.rate for cost in raw]),
        "ours, WAL B per row": median([cost.wal_bytes / cost.items for cost in ours]),
        "raw, WAL B per row": median([cost.wal_bytes / cost.items for cost in raw]),
        "ours, statements per row": median([cost.statements / cost.items for cost in ours]),
    }

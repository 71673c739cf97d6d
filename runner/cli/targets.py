"""Which targets a command means: names, or filters; and how a target is shown."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from ...queue import census
from ...queue import sources as queue_sources
from ...queue.census import Filter, Row
from ...schema.database import Connection
from ...schema.errors import UsageFault
from ...schema.records import Admission, State
from ...schema.text import display
from .frame import DURATION
from .paint import BAD, DIM, WARN, moment

Command = TypeVar("Command", bound=Callable[..., Any])

COLOURS = {
    State.FAILED: BAD,
    State.UNRESOLVED: BAD,
    State.DEFERRED: WARN,
    State.RETIRED: DIM,
}


def filters(command: Command) -> Command:
    """Add the options that say which targets are meant."""
    options = (
        click.option("--state", "states", multiple=True, type=click.Choice([state.value for state in State])),
        click.option("--source", "sources", multiple=True, metavar="SOURCE"),
        click.option("--error-code", metavar="CODE", help="With this last error."),
        click.option("--name", "part", metavar="TEXT", help="With this text in the name."),
        click.option("--admission", type=click.Choice([each.value for each in Admission])),
        click.option("--changed/--not-changed", "changed", default=None, help="Finished and changed since, or not."),
        click.option("--older-than", type=DURATION, metavar="DURATION", help="Waiting, or finished, at least so long."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def chosen(  # noqa: PLR0913 - one argument a filter
    conn: Connection,
    *,
    states: Sequence[str] = (),
    sources: Sequence[str] = (),
    error_code: str | None = None,
    part: str | None = None,
    admission: str | None = None,
    changed: bool | None = None,
    older_than: timedelta | None = None,
) -> Filter:
    """Build the filter. Raises ``UsageFault`` for an unknown source."""
    return Filter(
        states=tuple(State(state) for state in states),
        sources=tuple(source_id(conn, name) for name in sources),
        error_code=error_code,
        name=part,
        admission=Admission(admission) if admission else None,
        changed=changed,
        older_than=older_than,
    )


def narrows(options: dict[str, Any]) -> bool:
    """Whether any filter was given."""
    return any(value not in (None, ()) for value in options.values())


def source_id(conn: Connection, name: str) -> int:
    """The id of a source by its name. Raises ``UsageFault`` with the names that there are."""
    found = queue_sources.find(conn, name)
    if found is not None:
        return found
    from difflib import get_close_matches  # noqa: PLC0415 - only for a mistake

    names = [source.name for source in queue_sources.list_sources(conn)]
    close = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean {display(close[0])}?" if close else "`resweep sources list` shows them"
    raise UsageFault(f"there is no source {display(name, 100)!r}; {hint}")


def one(conn: Connection, text: str, *, source: str | None = None) -> Row:
    """The one target that a person names: by id, by name, or by a part of its name that only it has.

    Raises ``UsageFault`` when there is none, or more than one.
    """
    within = source_id(conn, source) if source is not None else None
    rows: list[Row] = []
    if text.isascii() and text.isdigit() and len(text) < 19:  # noqa: PLR2004 - what a bigint holds
        row = census.get(conn, int(text))
        rows = [row] if row is not None and (within is None or row.source_id == within) else []
    rows = rows or census.find(conn, text, source_id=within)
    if not rows:
        wanted = Filter(name=text, sources=(within,) if within is not None else ())
        rows = list(census.listing(conn, wanted, limit=11).rows)
    if len(rows) == 1:
        return rows[0]
    if not rows:
        raise UsageFault(f"there is no target {display(text, 200)!r}; `resweep queue list --name TEXT` searches")
    listed = ", ".join(
        f"{row.target_id} ({display(row.source, 40)}: {display(row.display_name, 60)})" for row in rows[:10]
    )
    more = ", …" if len(rows) > 10 else ""  # noqa: PLR2004 - ten are listed
    raise UsageFault(f"{display(text, 100)!r} may be several targets; name one by its id: {listed}{more}")


def several(conn: Connection, names: Sequence[str]) -> list[Row]:
    """The targets that a person names, each once."""
    rows = {row.target_id: row for row in (one(conn, name) for name in names)}
    return list(rows.values())


def matching(conn: Connection, wanted: Filter, *, limit: int) -> list[Row]:
    """The first ``limit`` targets of a filter, by id."""
    return list(census.listing(conn, wanted, limit=limit).rows)


def cells(row: Row, now: datetime) -> tuple[object, ...]:
    """A target as a row of a table: id, state, source, name, since when, why."""
    return row.target_id, row.state.value, row.source, row.display_name, since(row, now), reason(row)


def since(row: Row, now: datetime) -> str:
    """The time that matters in its state."""
    if row.state in {State.PENDING, State.DEFERRED}:
        return moment(row.not_before, now)
    if row.state is State.IN_PROGRESS:
        return moment(row.scan_started_at, now)
    if row.state is State.DONE:
        return moment(row.completed_at, now)
    return moment(row.last_error_at, now)


def reason(row: Row) -> str:
    """Why it is there, in few words."""
    if row.reserved_by is not None:
        return f"reserved by {row.reserved_by}"
    if row.state is State.DEFERRED:
        return f"{row.deferred_reason}: {row.last_error}" if row.last_error else row.deferred_reason or ""
    if row.state is State.FAILED or (row.state is State.PENDING and row.attempts):
        return f"{row.last_error_code}: {row.last_error}" if row.last_error_code else ""
    if row.state is State.UNRESOLVED:
        return row.unresolved_reason or ""
    if row.state is State.RETIRED:
        return row.retire_reason or ""
    if row.state is State.PENDING:
        return row.admission.value
    return "changed since" if row.changed else ""

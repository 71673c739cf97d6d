"""``resweep cycles`` and ``resweep runs``: what discovery and the other passes did."""

from datetime import datetime
from typing import Any

import click

from ...ledger import server
from ...queue import census
from ...schema.errors import UsageFault
from ...schema.text import display
from .frame import config_option, json_option, print_document, print_json, transaction
from .paint import BAD, DIM, WARN, duration, moment, table
from .targets import source_id

_COLOURS = {"failed": BAD, "partial": WARN, "skipped": DIM}
_LIMIT = click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000))
_BEFORE = click.option("--before", type=int, metavar="ID", help="Older than this one: the next page.")


@click.group("cycles")
def cycles() -> None:
    """Discovery cycles: what each found and admitted."""


@cycles.command("list")
@click.option("--source", metavar="SOURCE")
@click.option("--all", "everything", is_flag=True, help="Skipped ones too.")
@_LIMIT
@_BEFORE
@config_option
@json_option
def cycles_list(*, source: str | None, everything: bool, limit: int, before: int | None, as_json: bool) -> None:
    """List cycles, the newest first."""
    with transaction() as conn:
        within = source_id(conn, source) if source is not None else None
        rows = census.cycles(conn, source_id=within, limit=limit, before=before)
        now = server.moment(conn)
    shown = rows if everything or as_json else [row for row in rows if row["status"] != "skipped"]
    if as_json:
        print_json(shown)
        return
    table(
        ("ID", "SOURCE", "WHY", "STATUS", "BEGAN", "TOOK", "LISTED", "NEW", "CHANGED", "WAITING", "GONE", "ERROR"),
        [
            (
                row["id"],
                row["source"],
                row["trigger"],
                row["status"],
                moment(_at(row["started_at"]), now),
                _took(row),
                f"{row['fetched_count']:,}",
                f"{row['queued_new_count']:,}",
                f"{row['queued_updated_count']:,}",
                f"{row['changed_waiting_count']:,}",
                f"{row['retired_count']:,}",
                _error(row),
            )
            for row in shown
        ],
        right=(0, 5, 6, 7, 8, 9, 10),
        codes=[_COLOURS.get(row["status"], "") for row in shown],
    )


@cycles.command("show")
@click.argument("cycle_id", type=int)
@config_option
@json_option
def cycles_show(*, cycle_id: int, as_json: bool) -> None:
    """Show everything that one cycle counted."""
    with transaction() as conn:
        rows = census.cycles(conn, limit=1, before=cycle_id + 1)
    _show("cycle", cycle_id, rows, as_json=as_json)


@click.group("runs")
def runs() -> None:
    """Other passes: housekeeping and the like."""


@runs.command("list")
@click.option("--kind", metavar="KIND")
@_LIMIT
@_BEFORE
@config_option
@json_option
def runs_list(*, kind: str | None, limit: int, before: int | None, as_json: bool) -> None:
    """List passes, the newest first."""
    with transaction() as conn:
        rows = census.runs(conn, kind=kind, limit=limit, before=before)
        now = server.moment(conn)
    if as_json:
        print_json(rows)
        return
    table(
        ("ID", "KIND", "WHY", "STATUS", "BEGAN", "TOOK", "COUNTS", "ERROR"),
        [
            (
                row["id"],
                row["kind"],
                row["trigger"],
                row["status"],
                moment(_at(row["started_at"]), now),
                _took(row),
                ", ".join(f"{key} {value:,}" for key, value in row["counts"].items() if value),
                _error(row),
            )
            for row in rows
        ],
        right=(0, 5),
        codes=[_COLOURS.get(row["status"], "") for row in rows],
    )


@runs.command("show")
@click.argument("run_id", type=int)
@config_option
@json_option
def runs_show(*, run_id: int, as_json: bool) -> None:
    """Show everything about one pass."""
    with transaction() as conn:
        rows = census.runs(conn, limit=1, before=run_id + 1)
    _show("run", run_id, rows, as_json=as_json)


def _show(what: str, number: int, rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if not rows or rows[0]["id"] != number:
        raise UsageFault(f"there is no {what} {number}; `resweep {what}s list` shows them")
    if as_json:
        print_document({what: rows[0]})
        return
    for key, value in rows[0].items():
        if value not in (None, "", {}):
            click.echo(f"{key.replace('_', ' '):<24} {display(str(value))}")


def _at(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _took(row: dict[str, Any]) -> str:
    began, ended = _at(row["started_at"]), _at(row["finished_at"])
    return duration(ended - began) if began and ended else ""


def _error(row: dict[str, Any]) -> str:
    code, message = row["error_code"], row["error_message"]
    return f"{code}: {message}" if code and message else code or ""

"""``resweep sources``: what is configured, whether it can be reached, and pausing."""

from datetime import datetime, timedelta

import click

from ...ledger import audit, server
from ...queue import census
from ...queue import sources as queue_sources
from ...queue.sources import SourceRow
from ...schema.clock import SystemClock
from ...schema.errors import ResweepError
from ...schema.records import State
from ...schema.text import display
from ..config_sources import SourceConfig
from .discover import choose
from .frame import DURATION, config_option, configuration, json_option, opened, print_json, somebody
from .main import GOOD, PARTIAL, worst
from .paint import BAD, DIM, WARN, count, paint, say, table, yet
from .paint import GOOD as GREEN
from .targets import source_id


@click.group("sources")
def sources() -> None:
    """List, check, pause and resume sources."""


@sources.command("list")
@config_option
@json_option
def sources_list(*, as_json: bool) -> None:
    """List configured sources and those that the database knows."""
    settings = configuration()
    configured = {source.name: source for source in settings.sources}
    with opened(settings=settings) as store, store.database.transaction() as conn:
        rows = {row.name: row for row in queue_sources.list_sources(conn)}
        counts = {each.source: each for each in census.counts(conn)}
        now = server.moment(conn)
    names = sorted({*configured, *rows})
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "kind": configured[name].kind if name in configured else rows[name].kind,
                    "scope": configured[name].scope if name in configured else rows[name].scope,
                    "configured": name in configured,
                    "enabled": name in configured and configured[name].enabled,
                    "interval_seconds": configured[name].interval_seconds if name in configured else None,
                    "updated_rescan_enabled": configured[name].updated_rescan_enabled if name in configured else None,
                    "registered": name in rows,
                    "paused": name in rows and rows[name].paused,
                    "paused_until": rows[name].paused_until if name in rows else None,
                    "pause_reason": rows[name].pause_reason if name in rows else None,
                    "fault_streak": rows[name].fault_streak if name in rows else 0,
                    "last_fault_code": rows[name].last_fault_code if name in rows else None,
                    "targets": counts[name].by_state if name in counts else {},
                }
                for name in names
            ]
        )
        return
    table(
        ("SOURCE", "KIND", "STATE", "EVERY", "RESCANS", "TARGETS", "DONE", "NOTE"),
        [
            (
                name,
                configured[name].kind if name in configured else rows[name].kind,
                _state(configured.get(name), rows.get(name)),
                f"{configured[name].interval_seconds:g}s" if name in configured else "",
                _rescans(configured.get(name)),
                f"{sum(counts[name].by_state.values()):,}" if name in counts else "",
                f"{counts[name].by_state[State.DONE]:,}" if name in counts else "",
                _note(rows.get(name), now),
            )
            for name in names
        ],
        right=(3, 5, 6),
        codes=[WARN if name in rows and rows[name].paused else "" for name in names],
    )


def _state(configured: SourceConfig | None, row: SourceRow | None) -> str:
    if row is not None and row.paused:
        return "paused"
    if configured is None:
        return "command line" if row is not None and row.ad_hoc else "not configured"
    return "enabled" if configured.enabled else "disabled"


def _rescans(configured: SourceConfig | None) -> str:
    if configured is None:
        return ""
    if not configured.updated_rescan_enabled:
        return "off"
    return f"{configured.updated_rescan_max_per_cycle:,} a cycle"


def _note(row: SourceRow | None, now: datetime) -> str:
    if row is None:
        return "not started yet"
    if row.paused:
        until = f"for {yet(row.paused_until, now)}" if row.paused_until else "until it is resumed"
        if row.paused_by == "faults":
            return f"{until}: {row.last_fault_code}: {row.last_fault}"
        return f"{until}: {row.pause_reason} ({row.paused_by})"
    if row.fault_streak:
        return f"{count(row.fault_streak, 'fault')} in a row: {row.last_fault_code}: {row.last_fault}"
    return ""


@sources.command("check")
@click.argument("names", nargs=-1, metavar="[SOURCE|SPEC]...")
@config_option
@json_option
def sources_check(*, names: tuple[str, ...], as_json: bool) -> None:
    """Ask sources (all that are enabled, or those named) whether they can be reached; writes nothing; 3 when not."""
    from ..wiring import make_adapter, open_scanning  # noqa: PLC0415 - loads the scanners' side

    settings = configuration()
    chosen = choose(names, settings)
    results: list[tuple[str, bool, str, str]] = []
    with open_scanning(settings) as scanning:
        for source in chosen:
            try:
                said = make_adapter(settings, source, scanning.git, SystemClock()).check()
                results.append((source.name, True, "", said))
            except ResweepError as fault:
                results.append((source.name, False, getattr(fault, "code", "fault"), str(fault)))
    if as_json:
        print_json(
            [{"name": n, "good": good, "code": code or None, "message": text} for n, good, code, text in results]
        )
    else:
        for name, good, code, text in results:
            mark = paint("good", GREEN) if good else paint(code, BAD)
            click.echo(f"{display(name)}: {mark}: {display(text)}")
    raise click.exceptions.Exit(worst([GOOD if good else PARTIAL for _, good, _, _ in results]))


@sources.command("pause")
@click.argument("name")
@click.option("--why", required=True, metavar="TEXT")
@click.option("--for", "period", type=DURATION, metavar="DURATION", help="Only so long (default: until resumed).")
@config_option
def sources_pause(*, name: str, why: str, period: timedelta | None) -> None:
    """Hand out nothing from a source; running scans finish, discovery goes on."""
    with opened() as store, store.database.transaction() as conn:
        until = server.moment(conn) + period if period is not None else None
        queue_sources.pause(conn, source_id(conn, name), reason=why, by=somebody(), until=until)
        audit.note(conn, who=somebody(), act="sources pause", object_=name, changed=1, detail={"why": why})
    say(f"{display(name)} is paused" + (f" for {period}" if period is not None else " until `resweep sources resume`"))


@sources.command("resume")
@click.argument("name")
@config_option
def sources_resume(*, name: str) -> None:
    """Lift a pause, whoever made it."""
    with opened() as store, store.database.transaction() as conn:
        changed = queue_sources.resume(conn, source_id(conn, name))
        audit.note(conn, who=somebody(), act="sources resume", object_=name, changed=int(changed))
    say(f"{display(name)} goes on" if changed else paint(f"{display(name)} was not paused", DIM))

"""``resweep scan``: request scans through the queue, await them, print what was found."""

import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import click

from ...ledger import server
from ...queue import census, findings_reads, intake, requests
from ...queue import sources as queue_sources
from ...queue.census import Row
from ...queue.findings_reads import FindingFilter, FindingRow
from ...schema.clock import SystemClock
from ...schema.database import Connection, Database
from ...schema.errors import SourceFault, UsageFault
from ...schema.records import State
from ...schema.text import display
from ...sources.base import WalkLimits
from ...sources.specs import parse_spec
from .. import log
from ..config import Configuration
from ..config_sources import from_spec
from ..events import Listener
from ..logged import LogListener
from ..pool import open_pool
from ..running import Stop
from ..screen import Screen
from ..signals import Signals
from ..supervisor import prove_scanners
from ..wiring import ActiveSource, Scanning, activate, make_adapter, open_scanning, open_store, settle_key
from .frame import DURATION, config_option, configuration, json_option, print_document, somebody
from .main import ERROR, FINDINGS, GOOD, INTERRUPTED, PARTIAL, worst
from .paint import BAD, DIM, WARN, count, paint, say, table
from .up import command_line_sources
from .waiting import Waiting

_SIGN_SECONDS = 10.0
_COLOURS = {"critical": BAD, "high": BAD, "medium": WARN, "info": DIM}
_ALL = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Targets to await: their ids, and the source faults on the way to them."""

    ids: tuple[int, ...]
    faults: tuple[str, ...]
    sources: tuple[ActiveSource, ...]
    asked_at: datetime


@click.command("scan")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
@click.option(
    "--timeout", type=DURATION, metavar="DURATION", help="Stop waiting after this; what runs goes on or is given back."
)
@click.option("--no-wait", is_flag=True, help="Only ask; a running runtime scans.")
@click.option("--fail-on-findings", is_flag=True, help="Exit with 10 when findings are open.")
@config_option
@json_option
def scan(
    *, specs: tuple[str, ...], timeout: timedelta | None, no_wait: bool, fail_on_findings: bool, as_json: bool
) -> None:
    """Scan SPECs now and print their findings: `git:.` is this folder and every repository below it.

    The scan goes through the queue, so what did not change is not read again. A runtime that is running does the work;
    otherwise this command brings its own workers.
    """
    settings = configuration()
    chosen = command_line_sources(specs, settings)
    stop = Stop()
    with ExitStack() as stack:
        signals = stack.enter_context(Signals(stop))
        listener, step = _listener(stack, settings)
        step("reaching the database")
        store = stack.enter_context(open_store(settings, role="scan", schema="apply", tell=step))
        scanning = stack.enter_context(open_scanning(settings))
        step("looking for targets")
        active = activate(settings, chosen, store, scanning, cancel=stop.asked)
        wanted = _request(settings, store.database, scanning, active, stop.asked)
        for fault in wanted.faults:
            say(paint(display(fault), WARN, sys.stderr))
        if not wanted.ids and not wanted.faults and not stop.asked.is_set():
            raise UsageFault(
                f"nothing to scan at {', '.join(display(spec, 100) for spec in specs)}: no repository there"
            )
        if no_wait:
            say(f"{count(len(wanted.ids), 'scan')} asked for; `resweep status` shows them")
            raise click.exceptions.Exit(PARTIAL if wanted.faults else GOOD)

        def bring_workers() -> None:
            step("testing scanners")
            settle_key(store.database, scanning.key, settings)
            names = {name for source in wanted.sources for name in source.config.scanners}
            prove_scanners(scanning, names, cancel=stop.asked)
            if not stop.asked.is_set():
                pool = open_pool(
                    settings, store.database, scanning, wanted.sources, tell=listener, at_once=stop.at_once
                )
                stack.enter_context(pool)

        waiting = Waiting(store.database, wanted.ids, stop.asked, worker_seen=_worker_seen(settings))
        if waiting.nobody_works():
            bring_workers()
        else:
            say(paint("a running runtime scans", DIM, sys.stderr))
            waiting.instead = bring_workers
        in_time = waiting.wait(timeout)
        if not in_time:
            stop.at_once.set()  # time is up: running scans are given back, not waited for
        with store.database.transaction() as conn:
            rows = [row for row in (census.get(conn, target_id) for target_id in wanted.ids) if row is not None]
            paused = {row.name for row in queue_sources.list_sources(conn) if row.paused}
            found = (
                findings_reads.list_findings(conn, FindingFilter(target_ids=wanted.ids), limit=_ALL)
                if wanted.ids
                else []
            )
    _print(rows, found, paused, as_json=as_json, in_time=in_time, stopped=stop.asked.is_set())
    codes = _codes(wanted, rows, in_time=in_time or stop.asked.is_set())
    if signals.interrupted:
        codes.append(INTERRUPTED)
    if fail_on_findings and found:
        codes.append(FINDINGS)
    raise click.exceptions.Exit(GOOD if signals.terminated else worst(codes))


def _codes(wanted: _Wanted, rows: Sequence[Row], *, in_time: bool) -> list[int]:
    """What the ends of the targets mean for the exit code."""
    codes = [GOOD]
    if not in_time:
        codes.append(ERROR)
    if wanted.faults or any(row.state is not State.DONE or row.request_owed for row in rows):
        codes.append(PARTIAL)
    return codes


def _listener(stack: ExitStack, settings: Configuration) -> tuple[Listener, Callable[[str], None]]:
    """A screen on a terminal; in a pipe only what is wrong."""
    if sys.stderr.isatty() and settings.settings.log.format is None:
        screen = stack.enter_context(Screen(SystemClock(), total=True).shown())
        log.set_up(level="warning", form="text")
        return screen, screen.step
    log.set_up(
        level="warning" if settings.settings.log.level == "info" else settings.settings.log.level,
        form=settings.settings.log.format,
    )
    return LogListener(), _silent


def _silent(words: str) -> None:
    """Steps of the start are not told in a pipe."""
    del words


def _request(
    settings: Configuration,
    database: Database,
    scanning: Scanning,
    active: Sequence[ActiveSource],
    stop: threading.Event,
) -> _Wanted:
    """Find the targets of the specs, in the row of an enabled source where one has them, and ask for their scan.

    Ends early when ``stop`` is set: what was asked for by then stays asked for.
    """
    configured = {source.name: source for source in settings.sources if source.enabled}
    ids: list[int] = []
    faults: list[str] = []
    used: dict[int, ActiveSource] = {}
    with database.connection() as conn:
        asked_at = server.moment(conn)
        by_hand = [row.name for row in queue_sources.list_sources(conn) if row.ad_hoc]
    for source in active:
        try:
            for page in source.adapter.walk(WalkLimits()):
                if stop.is_set():  # before it counts: what was cut off looks like a fault of its target
                    break
                faults += [
                    f"{fault.entry}: {fault.code}: {fault.message}"
                    for fault in page.faults
                    if fault.code != "duplicate"
                ]
                names = [seen.name for seen in page.observations]
                with database.transaction() as conn:
                    known = _known(conn, names, (*configured, *by_hand))
                    new = [seen for seen in page.observations if seen.name not in known]
                    intake.observe(conn, source.source_id, new)
                    own = {
                        row.name: row
                        for name in names
                        if name not in known
                        for row in census.find(conn, name, source_id=source.source_id)
                    }
                    rows = [*known.values(), *own.values()]
                    ids += [row.target_id for row in rows]
                    requests.request(conn, [row.target_id for row in rows], now_flag=True, by=somebody())
                used[source.source_id] = source
        except SourceFault as fault:
            if not stop.is_set():
                faults.append(f"{source.config.name}: {fault.code}: {fault}")
        if stop.is_set():
            break
    with database.connection() as conn:
        homes = {
            row.source: row.source_id for row in (census.get(conn, target_id) for target_id in ids) if row is not None
        }
    for name, source_id in homes.items():
        if source_id not in used:
            config = configured.get(name) or from_spec(parse_spec(name, cwd=Path.cwd()), settings.settings)
            adapter = make_adapter(settings, config, scanning.git, scanning.clock)
            used[source_id] = ActiveSource(config=config, source_id=source_id, adapter=adapter)
    return _Wanted(
        ids=tuple(dict.fromkeys(ids)),
        faults=tuple(dict.fromkeys(faults)),
        sources=tuple(used.values()),
        asked_at=asked_at,
    )


def _known(conn: Connection, names: Sequence[str], sources: Sequence[str]) -> dict[str, Row]:
    """Rows that have these targets already: of the first of ``sources``, configured ones before those of specs."""
    order = {source: place for place, source in enumerate(sources)}
    found: dict[str, Row] = {}
    for name in names:
        rows = [
            row
            for row in census.find(conn, name)
            if row.source in order and row.name == name and row.state is not State.RETIRED
        ]
        if rows:
            found[name] = min(rows, key=lambda row: order[row.source])
    return found


def _worker_seen(settings: Configuration) -> timedelta:
    """How old a living worker's last sign may be: it renews leases each quarter of one, and looks for work oftener."""
    return timedelta(seconds=settings.settings.workers.lease_seconds / 4 + _SIGN_SECONDS)


def _print(
    rows: Sequence[Row],
    found: Sequence[FindingRow],
    paused: Collection[str],
    *,
    as_json: bool,
    in_time: bool,
    stopped: bool,
) -> None:
    done = [row for row in rows if row.state is State.DONE and not row.request_owed]
    left = [row for row in rows if row not in done]
    if as_json:
        from ..export.document import finding_document  # noqa: PLC0415 - for this form only

        print_document(
            {
                "items": [finding_document(row, ()) for row in found],
                "total": len(found),
                "targets": [
                    {
                        "id": row.target_id,
                        "name": row.name,
                        "state": row.state,
                        "error_code": row.last_error_code,
                        "error": row.last_error,
                    }
                    for row in rows
                ],
                "in_time": in_time,
            }
        )
        return
    if found:
        table(
            ("ID", "SEVERITY", "RULE", "TARGET", "WHERE", "SECRET"),
            [(f.id, f.severity, f.rule, f.display_name, _where(f), f.masked) for f in found],
            right=(0,),
            codes=[_COLOURS.get(f.severity, "") for f in found],
        )
    say(f"{count(len(done), 'target')} scanned, {count(len(found), 'open finding')}")
    for row in left:
        reason = (
            f"its source is paused: `resweep sources resume '{row.source}'`"
            if row.source in paused
            else f"{row.last_error_code}: {row.last_error}"
            if row.last_error_code
            else row.deferred_reason or row.state.value
        )
        say(paint(f"not scanned: {display(row.display_name)}: {display(reason)}", WARN, sys.stderr))
    if not in_time:
        say("time was up before all scans were over; `resweep status` shows what goes on")
    elif stopped and left:
        say("stopped before all scans were over; what was asked for stays in the queue")


def _where(row: FindingRow) -> str:
    if not row.places:
        return ""
    place = row.places[0]
    more = f" +{row.place_count - 1}" if row.place_count > 1 else ""
    return f"{place.path}:{place.line or '?'}{more}"

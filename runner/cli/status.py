"""``resweep status``: the state at a glance: what waits, who works, what discovery did, what was found."""

import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import click

from ...ledger import authority, server
from ...ledger.authority import Leader
from ...queue import census, findings_reads
from ...queue import sources as queue_sources
from ...queue.census import InFlight, SourceCensus
from ...queue.findings_reads import FindingFilter
from ...queue.sources import SourceRow
from ...schema.database import Connection
from ...schema.records import State
from ...schema.text import display
from .frame import DURATION, config_option, json_option, opened, print_document
from .paint import BAD, DIM, GOOD, STRONG, WARN, colourful, count, duration, moment, paint, table

_LIVE = timedelta(minutes=2)
_SHOWN_LEASES = 8
_SEVERITIES = (("critical", BAD), ("high", BAD), ("medium", WARN), ("low", ""), ("info", DIM))


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One look."""

    at: datetime
    sources: tuple[SourceCensus, ...]
    rows: tuple[SourceRow, ...]
    workers: tuple[dict[str, Any], ...]
    in_flight: tuple[InFlight, ...]
    last_cycles: dict[str, dict[str, Any]]
    findings: dict[str, int]
    leader: Leader | None


@click.command("status")
@click.option("--watch", is_flag=True, help="Look again and again until Ctrl-C.")
@click.option("--every", type=DURATION, default="2s", show_default=True, metavar="DURATION")
@config_option
@json_option
def status(*, watch: bool, every: timedelta, as_json: bool) -> None:
    """Show the state at a glance: what waits and how long, who works, what was found."""
    pause = max(0.2, every.total_seconds())
    with opened() as store:
        while True:
            with store.database.transaction() as conn:
                seen = look(conn)
            if as_json:
                print_document(_document(seen))
            else:
                if watch and colourful(sys.stdout):
                    click.echo("\x1b[H\x1b[2J", nl=False)
                _show(seen)
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(pause)


def look(conn: Connection) -> Status:
    """Read everything in one transaction."""
    last: dict[str, dict[str, Any]] = {}
    for row in census.cycles(conn, limit=200):
        if row["status"] != "skipped":
            last.setdefault(row["source"], row)
    by_severity: Counter[str] = Counter()
    for (_, severity), number in findings_reads.count_findings(conn, FindingFilter()).items():
        by_severity[severity] += number
    return Status(
        at=server.moment(conn),
        sources=tuple(census.counts(conn)),
        rows=tuple(queue_sources.list_sources(conn)),
        workers=tuple(w for w in census.workers(conn, seen_within=_LIVE) if w.get("stopped_at") is None),
        in_flight=tuple(census.in_flight(conn, limit=200)),
        last_cycles=last,
        findings=dict(by_severity),
        leader=authority.leader(conn),
    )


def _document(seen: Status) -> dict[str, Any]:
    return {
        "at": seen.at,
        "sources": [
            {
                "name": each.source,
                "targets": each.by_state,
                "claimable": each.claimable,
                "oldest_waiting_seconds": each.oldest_waiting,
                "changed_waiting": each.changed_waiting,
                "paused": next((row.paused for row in seen.rows if row.name == each.source), False),
                "last_cycle": seen.last_cycles.get(each.source),
            }
            for each in seen.sources
        ],
        "workers": list(seen.workers),
        "in_flight": list(seen.in_flight),
        "findings_open": seen.findings,
        "leader": seen.leader,
    }


def _show(seen: Status) -> None:
    oldest = max((each.oldest_waiting for each in seen.sources if each.oldest_waiting), default=None)
    waiting = sum(each.claimable for each in seen.sources)
    slots = sum(int(worker["slots"]) for worker in seen.workers)
    busy = len(seen.in_flight)
    _line("waiting", f"{count(waiting, 'target')}" + (f", the oldest for {duration(oldest)}" if oldest else ""))
    working = f"{busy} of {count(slots, 'slot')} busy in {count(len(seen.workers), 'process', 'processes')}"
    _line("workers", working if seen.workers else paint("none is running: `resweep up`, or `resweep work`", WARN))
    if seen.leader is not None:
        _line("leads", f"{display(seen.leader.name)} since {moment(seen.leader.since, seen.at)}")
    total = sum(seen.findings.values())
    parts = [paint(f"{seen.findings[name]:,} {name}", code) for name, code in _SEVERITIES if seen.findings.get(name)]
    _line("findings", f"{total:,} open: {', '.join(parts)}" if total else paint("none open", GOOD))
    if seen.sources:
        click.echo("")
        paused = {row.name for row in seen.rows if row.paused}
        table(
            ("SOURCE", "TARGETS", "DONE", "WAITING", "RUNNING", "DEFERRED", "FAILED", "CHANGED", "LAST CYCLE"),
            [
                (
                    each.source + (" (paused)" if each.source in paused else ""),
                    f"{sum(number for state, number in each.by_state.items() if state is not State.RETIRED):,}",
                    f"{each.by_state[State.DONE]:,}",
                    f"{each.by_state[State.PENDING]:,}",
                    f"{each.by_state[State.IN_PROGRESS]:,}",
                    f"{each.by_state[State.DEFERRED]:,}",
                    f"{each.by_state[State.FAILED] + each.by_state[State.UNRESOLVED]:,}",
                    f"{each.changed_waiting:,}",
                    _cycle(seen.last_cycles.get(each.source), seen.at),
                )
                for each in seen.sources
            ],
            right=(1, 2, 3, 4, 5, 6, 7),
            codes=[WARN if each.source in paused or each.by_state[State.FAILED] else "" for each in seen.sources],
        )
    if seen.in_flight:
        click.echo("")
        table(
            ("SCANNING", "SOURCE", "SINCE", "ATTEMPT", "WORKER"),
            [
                (
                    lease.name,
                    lease.source,
                    duration(seen.at - lease.started_at),
                    lease.attempts,
                    f"{lease.host}:{lease.pid}" if lease.host else str(lease.worker)[:8],
                )
                for lease in seen.in_flight[:_SHOWN_LEASES]
            ],
            right=(2, 3),
        )
        if busy > _SHOWN_LEASES:
            click.echo(paint(f"and {busy - _SHOWN_LEASES} more", DIM))


def _cycle(row: dict[str, Any] | None, now: datetime) -> str:
    if row is None:
        return "never"
    when = moment(datetime.fromisoformat(row["finished_at"] or row["started_at"]), now)
    return when if row["status"] == "success" else f"{row['status']} {when}"


def _line(head: str, text: str) -> None:
    click.echo(f"{paint(f'{head:<10}', STRONG)}{text}")

"""``resweep discover``: one discovery cycle now, or what it would see."""

from collections.abc import Sequence

import click

from ...queue import census
from ...schema.clock import SystemClock
from ...schema.errors import SourceFault, UsageFault
from ...schema.text import display
from ...sources.base import WalkLimits
from ..config import Configuration
from ..config_sources import SourceConfig
from ..cycle import Cycle
from ..events import CycleEnded
from ..screen import cycle_lines
from ..wiring import activate, make_adapter, open_scanning
from .frame import config_option, configuration, json_option, opened, print_json
from .main import GOOD, PARTIAL, worst
from .paint import count, say
from .up import command_line_sources


@click.command("discover")
@click.argument("names", nargs=-1, metavar="[SOURCE|SPEC]...")
@click.option("--dry-run", is_flag=True, help="Ask the provider and write nothing.")
@config_option
@json_option
def discover(*, names: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Run one discovery cycle now for sources (all enabled ones, or those named); a backlog does not hold it back."""
    settings = configuration()
    chosen = choose(names, settings)
    if dry_run:
        _look(chosen, settings, as_json=as_json)
        return
    ended: list[CycleEnded] = []
    with opened(settings=settings) as store, open_scanning(settings) as scanning:
        for source in activate(settings, chosen, store, scanning):
            cycle = Cycle(source, database=store.database, clock=SystemClock())
            ended.append(cycle.run("manual", by_hand=True))
            if not as_json:
                for line in cycle_lines(ended[-1], quiet=False):
                    click.echo(line.plain)
    if as_json:
        print_json(ended)
    bad = [event for event in ended if event.status in {"failed", "partial"} or event.reason == "held"]
    raise click.exceptions.Exit(PARTIAL if bad else GOOD)


def choose(names: Sequence[str], settings: Configuration) -> list[SourceConfig]:
    """Sources by name, or specs; all enabled ones when none is named. Raises ``UsageFault``."""
    known = {source.name: source for source in settings.sources}
    chosen = [known[name] for name in names if name in known]
    chosen += command_line_sources([name for name in names if name not in known and ":" in name], settings)
    missing = [name for name in names if name not in known and ":" not in name]
    if missing:
        listed = ", ".join(known) or "none"
        raise UsageFault(f"there is no source {display(missing[0], 100)!r}; configured are {listed}")
    if not names:
        chosen = [source for source in settings.sources if source.enabled]
    if not chosen:
        raise UsageFault("no source is configured; name a spec, for example `resweep discover git:.`")
    return chosen


def _look(chosen: Sequence[SourceConfig], settings: Configuration, *, as_json: bool) -> None:
    """Walk and compare with what is known; write nothing."""
    items: list[dict[str, object]] = []
    codes = [GOOD]
    with opened(settings=settings) as store, open_scanning(settings) as scanning:
        for source in chosen:
            adapter = make_adapter(settings, source, scanning.git, SystemClock())
            try:
                for page in adapter.walk(WalkLimits()):
                    with store.database.transaction() as conn:
                        for seen in page.observations:
                            rows = [row for row in census.find(conn, seen.name) if row.source == source.name]
                            items.append(
                                {
                                    "source": source.name,
                                    "name": seen.name,
                                    "display_name": seen.display_name,
                                    "known": bool(rows),
                                    "state": rows[0].state if rows else None,
                                    "remote_modified_at": seen.remote_modified_at,
                                }
                            )
                    for fault in page.faults:
                        codes.append(PARTIAL)
                        say(f"{fault.code}: {display(fault.entry, 200)}: {display(fault.message, 300)}")
            except SourceFault as fault:
                codes.append(PARTIAL)
                say(f"{display(source.name)}: {fault.code}: {display(str(fault))}")
    if as_json:
        print_json(items)
    else:
        for item in items:
            click.echo(f"{'known' if item['known'] else 'new':<6} {display(str(item['display_name']))}")
        fresh = sum(not item["known"] for item in items)
        say(f"{count(len(items), 'target')}, {fresh:,} of them new; nothing was written")
    raise click.exceptions.Exit(worst(codes))

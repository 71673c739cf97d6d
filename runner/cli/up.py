"""``resweep up`` and ``resweep work``: the runtime, and a worker pool alone."""

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from ...schema.clock import SystemClock
from ...schema.errors import UsageFault
from ...sources.specs import parse_spec
from .. import log
from ..config import Configuration
from ..config_sources import SourceConfig, from_spec
from ..events import Listener
from ..logged import LogListener
from ..running import Options, Stop
from ..screen import Screen
from ..signals import Signals
from ..supervisor import Supervisor
from .frame import DURATION, config_option, configuration, json_option
from .main import GOOD, INTERRUPTED, PARTIAL
from .outcome import print_summary

_CAP = "updated_rescan_max_per_cycle"

_Shown = tuple[tuple[Listener, ...], Callable[[str], None]]


@click.command("up")
@click.argument("specs", nargs=-1, metavar="[SPEC]...")
@config_option
@click.option("--once", is_flag=True, help="Discover, scan until nothing is eligible, print the summary, end.")
@click.option("--for", "period", type=DURATION, metavar="DURATION", help="End in order after this: 75s, 5m, 2h.")
@click.option("--no-web", is_flag=True, help="Serve no pages, metrics and probes.")
@click.option("--no-workers", is_flag=True, help="Discover and serve only; other processes scan.")
@click.option("--no-scheduler", is_flag=True, help="Run no discovery by itself.")
@json_option
def up(
    *,
    specs: tuple[str, ...],
    once: bool,
    period: timedelta | None,
    no_web: bool,
    no_workers: bool,
    no_scheduler: bool,
    as_json: bool,
) -> None:
    """Run the whole runtime in the foreground: discovery, scans, pages.

    SPEC says what to watch beside the configured sources: `git:.` (this folder and every repository below it),
    `git:URL`, `git:@FILE` with one address a line. Ctrl-C ends in order, a second one at once.
    """
    settings = configuration()
    by_hand = command_line_sources(specs, settings)
    sources = (*[source for source in settings.sources if source.enabled], *by_hand)
    if not sources and (once or not no_workers) and settings.database_url() is None:
        message = (
            "nothing to watch: name a target (`resweep up git:.` for this folder and every repository below it), or "
            "configure sources in resweep.toml"
        )
        raise UsageFault(message)
    options = Options(
        sources=sources,
        once=once,
        workers=not no_workers,
        scheduler=not no_scheduler and settings.scheduler_enabled(by_command=True),
        web=not no_web,
        all_targets=not once,
        capped_by_hand=_capped(settings, sources),
    )
    run_runtime(settings, options, period=period, as_json=as_json)


@click.command("work")
@config_option
@click.option("--concurrency", type=click.IntRange(1, 1024), metavar="N", help="Scans beside each other.")
@click.option("--sources", "names", multiple=True, metavar="SOURCE", help="Only targets of this source; repeatable.")
@click.option("--for", "period", type=DURATION, metavar="DURATION", help="End in order after this.")
@click.option("--web", is_flag=True, help="Serve metrics and probes.")
def work(*, concurrency: int | None, names: tuple[str, ...], period: timedelta | None, web: bool) -> None:
    """Run a worker pool only: more machines run this against the same database."""
    overrides: dict[tuple[str, ...], tuple[Any, str]] = {}
    if concurrency is not None:
        overrides["workers", "concurrency"] = (concurrency, "--concurrency")
    settings = configuration(overrides)
    wanted = tuple(part for name in names for part in name.split(",") if part)
    known = {source.name: source for source in settings.sources}
    options = Options(
        sources=tuple(source for source in known.values() if source.enabled and (not wanted or source.name in wanted)),
        only=tuple(wanted),
        scheduler=False,
        web=web,
        all_targets=not wanted,
    )
    run_runtime(settings, options, period=period, as_json=False)


def command_line_sources(specs: Sequence[str], settings: Configuration) -> tuple[SourceConfig, ...]:
    """The sources behind specs; one that is named twice is one. Raises ``UsageFault``."""
    found: dict[str, SourceConfig] = {}
    for text in specs:
        spec = parse_spec(text, cwd=Path.cwd())
        found.setdefault(spec.canonical, from_spec(spec, settings.settings))
    return tuple(found.values())


def _capped(settings: Configuration, sources: Sequence[SourceConfig]) -> frozenset[str]:
    """Sources whose cap somebody wrote down: with ``--once`` one cycle's worth of it is admitted."""
    return frozenset(
        source.name
        for source in sources
        if ("sources", source.name, _CAP) in settings.origins
        or (not source.ad_hoc and ("defaults", _CAP) in settings.origins)
    )


def run_runtime(settings: Configuration, options: Options, *, period: timedelta | None, as_json: bool) -> None:
    """Run a supervisor with signals, screen or logs; ends the command with its exit code."""
    clock = SystemClock()
    stop = Stop()
    with Signals(stop) as signals, _shown(settings, total=options.once) as (listeners, step):
        if period is not None:
            signals.end_after(period.total_seconds())
        supervisor = Supervisor(settings, options, listeners=listeners, step=step, stop=stop, clock=clock)
        summary = supervisor.run()
    if summary is not None:
        print_summary(summary, as_json=as_json)
    if signals.interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
    raise click.exceptions.Exit(PARTIAL if summary is not None and summary.partial and not signals.terminated else GOOD)


@contextmanager
def _shown(settings: Configuration, *, total: bool) -> Generator[_Shown, None, None]:
    """A screen on a terminal, log lines otherwise."""
    level, form = settings.settings.log.level, settings.settings.log.format
    on_terminal = sys.stderr.isatty() and form is None and os.environ.get("TERM") != "dumb"
    if not on_terminal:
        log.set_up(level=level, form=form)
        logger = log.logger()
        yield (LogListener(),), logger.debug
        return
    screen = Screen(SystemClock(), total=total)
    with screen.shown():
        # Above the live line, and only what somebody should see: the screen itself shows what happens.
        log.set_up(level="warning" if level == "info" else level, form="text", stream=sys.stderr)
        yield (screen,), screen.step

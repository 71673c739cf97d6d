"""What a person sees while it works: lines for what is worth one, one line of progress with the time that remains.

Only on a terminal; in a pipe ``log.py`` writes lines. Everything foreign passes ``display``, never read as markup.
"""

import shutil
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from ..schema.clock import Clock
from ..schema.records import Claim, ScanOutcome, ScanReport
from ..schema.text import display
from .cli.paint import colourful, count, duration
from .events import (
    Claimed,
    CycleEnded,
    DatabaseAway,
    DatabaseBack,
    Event,
    LeaseWasLost,
    Noted,
    Reaped,
    ScanEnded,
    ScanStarted,
)
from .schedule import remaining_seconds

_NAME = 60
_BAR = 24
_SEVERE = ("critical", "high", "medium", "low", "info")
_STYLES = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan", "info": "dim"}


class Screen:
    """A listener that draws on a terminal."""

    def __init__(self, clock: Clock, *, total: bool) -> None:
        """``total``: there is an end to reach (``--once``, ``scan``), so a bar and the remaining time are drawn."""
        self._clock = clock
        self._total = total
        self.console = Console(
            file=sys.stderr,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
            no_color=not colourful(sys.stderr),
        )
        self._lock = threading.Lock()
        self._running: dict[tuple[int, int], tuple[Claim, float]] = {}
        self._step = ""
        self._began = clock.monotonic()
        self._first_scan: float | None = None
        self._known = 0  # targets admitted in this run
        self._done = 0
        self._findings = 0
        self._failed = 0
        self._ready = False
        self._live: Live | None = None
        self._trouble: dict[
            str, tuple[object, ...]
        ] = {}  # by source: what its last cycle said, so that it is said once

    @contextmanager
    def shown(self) -> Generator["Screen", None, None]:
        """Draw for the length of the block."""
        with Live(
            get_renderable=self._draw, console=self.console, refresh_per_second=8, transient=True, redirect_stdout=False
        ) as live:
            self._live = live
            try:
                yield self
            finally:
                self._live = None

    def step(self, words: str) -> None:
        """The start is busy with this."""
        with self._lock:
            self._step = words

    def say(self, text: Text | str) -> None:
        """One line above the progress."""
        self.console.print(text if isinstance(text, Text) else Text(text), soft_wrap=True)

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Claimed():
                with self._lock:
                    self._known = max(self._known, self._done + len(self._running) + len(event.claims))
            case ScanStarted():
                with self._lock:
                    now = self._clock.monotonic()
                    self._first_scan = self._first_scan or now
                    self._running[event.claim.target_id, event.claim.lease_token] = (event.claim, now)
            case ScanEnded():
                self._scan(event)
            case CycleEnded():
                self._cycle(event)
            case LeaseWasLost():
                self.say(Text(f"lease lost: {_name(event.claim)} ({event.why})", "yellow"))
            case Reaped():
                self.say(Text(f"{count(event.pending + event.failed, 'expired lease')} taken back", "yellow"))
            case DatabaseAway():
                self.say(Text(f"database away ({event.part}): {display(event.message)}; trying again", "yellow"))
            case DatabaseBack():
                self.say(Text(f"database back after {duration(event.seconds)} ({event.part})", "green"))
            case Noted():
                self._noted(event)

    def _noted(self, event: Noted) -> None:
        if event.code == "ready":
            with self._lock:
                self._step, self._ready = "", True
        style = {"warning": "yellow", "error": "bold red"}.get(event.level, "dim")
        if event.level != "debug":
            self.say(Text(display(event.message), style))

    def _scan(self, event: ScanEnded) -> None:
        found = sum(len(report.findings) for report in event.reports)
        with self._lock:
            self._running.pop((event.claim.target_id, event.claim.lease_token), None)
            if event.accepted:
                self._done += 1
                self._findings += found
                self._failed += event.ending == "failed"
        if event.accepted:
            line = scan_line(event)
            if line is not None:
                self.say(line)

    def _cycle(self, event: CycleEnded) -> None:
        with self._lock:
            self._known += event.queued_new + event.queued_updated
            self._step = ""
            known = self._trouble.get(event.source) == event.trouble
            self._trouble[event.source] = event.trouble
        if event.news or not known:
            quiet = not self._total and event.status in {"success", "skipped"}
            for line in cycle_lines(event, quiet=quiet, faults=not known):
                self.say(line)

    def _draw(self) -> Text:
        with self._lock:
            now = self._clock.monotonic()
            running = sorted(self._running.values(), key=lambda each: each[1])
            line = Text(no_wrap=True, overflow="ellipsis")
            frames = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
            line.append(frames[int(now * 8) % len(frames)] + " ", "cyan")
            if self._step:
                line.append(f"{self._step} …  {duration(now - self._began)}", "dim")
                return line
            if self._total and self._known:
                full = min(_BAR, _BAR * self._done // max(1, self._known))
                line.append("━" * full, "green").append("━" * (_BAR - full), "dim")
                line.append(f" {self._done}/{self._known}")
                since = now - (self._first_scan or now)
                left = remaining_seconds(done=self._done, total=self._known, seconds=since)
                line.append(f"  {duration(now - self._began)}")
                if left is not None:
                    line.append(f", about {duration(left)} left", "dim")
            else:
                line.append(
                    f"{count(self._done, 'scan')}, {count(self._findings, 'finding')}" if self._done else "watching"
                )
            if self._failed:
                line.append(f"  {self._failed} failed", "red")
            if running:
                shown = ", ".join(_name(claim, 28) for claim, _ in running[:3])
                more = f" +{len(running) - 3}" if len(running) > 3 else ""  # noqa: PLR2004 - three are shown
                line.append(f"  {shown}{more}", "cyan")
            line.truncate(shutil.get_terminal_size().columns - 1, overflow="ellipsis")
            return line


def scan_line(event: ScanEnded) -> Text | None:
    """One line on a claim that ended; None when there is nothing worth one (nothing new)."""
    name = _name(event.claim)
    if event.ending == "failed":
        again = "" if event.state is not None and event.state.value == "failed" else "; it is tried again"
        return Text.assemble(
            ("✗ ", "red"), name, (f"  {event.code}: {display(event.message or '', 300)}{again}", "red")
        )
    if event.ending == "deferred":
        return Text.assemble(
            ("… ", "yellow"), name, (f"  put off: {event.code}: {display(event.message or '', 300)}", "yellow")
        )
    if event.ending == "released":
        return Text.assemble(
            ("… ", "dim"), name, (f"  given back: {event.code} {display(event.message or '', 200)}".rstrip(), "dim")
        )
    outcomes = {report.outcome for report in event.reports}
    if outcomes <= {ScanOutcome.UNCHANGED}:
        return None
    line = Text.assemble(("✓ ", "green"), name)
    found = [finding for report in event.reports for finding in report.findings]
    if found:
        line.append("  ")
        for number, severity in enumerate(each for each in _SEVERE if any(f.severity == each for f in found)):
            amount = sum(finding.severity == severity for finding in found)
            line.append(f"{', ' if number else ''}{amount} {severity}", _STYLES[severity])
    elif outcomes <= {ScanOutcome.EMPTY}:
        line.append("  empty", "dim")
    else:
        line.append("  clean", "dim")
    line.append(f"  {_work(event.reports)}{duration(event.seconds)}", "dim")
    limited = [report for report in event.reports if report.outcome is ScanOutcome.LIMITED]
    if limited:
        line.append(f"  limited: {limited[0].error_code or limited[0].not_scanned[0].reason}", "yellow")
    if any(report.outcome is ScanOutcome.FAILED for report in event.reports):
        line.append(f"  {event.code}: {display(event.message or '', 200)}", "red")
    return line


def cycle_lines(event: CycleEnded, *, quiet: bool, faults: bool = True) -> Iterator[Text]:
    """Lines on a cycle: always when something is wrong, otherwise only when it brought something (or not ``quiet``).

    ``faults``: name the entries that have problems.
    """
    name = display(event.source, 80)
    news = event.news
    if event.status == "skipped":
        if not quiet:
            yield Text(f"{name}: skipped, {display(event.message or '')}", "dim")
        return
    if news or not quiet or event.status != "success":
        parts = [count(event.fetched, "target")]
        for number, word in (
            (event.queued_new, "new"),
            (event.queued_updated, "changed"),
            (event.changed_waiting, "changed and waiting"),
            (event.renamed, "renamed"),
            (event.retired, "gone"),
        ):
            if number:
                parts.append(f"{number:,} {word}")
        left_out = ", ".join(f"{number:,} {reason.replace('_', ' ')}" for reason, number in event.not_listed)
        line = Text.assemble((name, "bold"), f": {', '.join(parts)}")
        if left_out:
            line.append(f"  (not listed: {left_out})", "dim")
        yield line
    if event.status != "success" and not event.fault_count:
        yield Text(f"  {event.status}: {event.reason}: {display(event.message or '', 300)}", "yellow")
    for entry, code, message in event.faults[:10] if faults else ():
        yield Text(f"  {code}: {display(entry, 200)}: {display(message, 300)}", "yellow")
    if event.fault_count > 10 and faults:  # noqa: PLR2004 - ten are shown
        yield Text(f"  … and {event.fault_count - 10} more", "yellow")


def _work(reports: tuple[ScanReport, ...]) -> str:
    size = sum(report.bytes_read for report in reports)
    return f"{size_words(size)}, " if size else ""


def size_words(size: float) -> str:
    """``512 B``, ``3.4 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":  # noqa: PLR2004 - a thousand of one unit is one of the next
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"  # noqa: PLR2004 - three digits
        size /= 1000
    return ""


def _name(claim: Claim, limit: int = _NAME) -> str:
    return display(claim.display_name or claim.name, limit)

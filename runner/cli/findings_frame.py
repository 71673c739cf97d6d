"""What the ``findings`` commands share: how they reach the database, their filters, their tables, their errors."""

import getpass
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import click

from ...queue.findings_model import SEVERITIES
from ...queue.findings_paths import parse
from ...queue.findings_reads import ACTIONABLE, STATUSES, FindingFilter, Origin, Status
from ...schema.database import Connection
from ...schema.errors import ResweepError, UsageFault
from ...schema.text import display

ACCESS_KEY: Final = "resweep.findings"
"""Under this key of ``Context.meta`` a caller may put a function that gives ``FindingsAccess``."""

_DURATION: Final = re.compile(r"(\d+)\s*(s|m|h|d|w)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_WIDTH: Final = 60

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsAccess:
    """What these commands need of the rest; made only when a command runs."""

    transaction: Callable[[], AbstractContextManager[Connection]]  # one transaction, committed at a good end
    now: Callable[[], datetime]  # for people's durations only ("--since 2d")
    version: str
    allow_reveal: bool = False  # findings.allow_reveal
    read_blob: Callable[[Origin, str], bytes] | None = None  # a blob (hex) out of the checkout cache
    identify: Callable[[Origin, str, bytes], bytes] | None = None  # identity of a secret: origin, rule, secret


class Findings(click.Group):
    """A group whose own errors end with the product's exit codes: 2 for what was asked wrongly, 1 for the rest."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and translate what it raises."""
        try:
            return super().invoke(ctx)
        except UsageFault as error:
            raise click.UsageError(display(str(error)), ctx=None) from error
        except ResweepError as error:
            raise click.ClickException(display(str(error))) from error


@click.group(cls=Findings)
def findings() -> None:
    """What scanners found: list, show, triage, export."""


def access() -> FindingsAccess:
    """Give what these commands need: as a caller has prepared it, else made from this call's configuration."""
    prepared: Callable[[], FindingsAccess] | None = click.get_current_context().meta.get(ACCESS_KEY)
    if prepared is not None:
        return prepared()
    from .findings_access import command_access  # noqa: PLC0415 - loads the scanners' side, which --help need not

    return command_access()


def filters(command: Command) -> Command:
    """Add the options that say which findings are meant."""
    options = (
        click.option(
            "--state", "states", multiple=True, type=click.Choice((*STATUSES, "all")), help="Default: open, reopened."
        ),
        click.option("--severity", "severities", multiple=True, type=click.Choice(tuple(reversed(SEVERITIES)))),
        click.option("--rule", "rules", multiple=True, metavar="RULE"),
        click.option("--source", "sources", multiple=True, metavar="SOURCE"),
        click.option("--target", "targets", multiple=True, metavar="TARGET"),
        click.option("--path", "path", metavar="PATTERN", help="As in ignore files: *.py, tests/, /src/**/x."),
        click.option("--scanner", "scanner", metavar="SCANNER"),
        click.option("--in-head/--not-in-head", "in_head", default=None, help="Still in the default branch, or not."),
        click.option("--since", "since", metavar="TIME", help="New, reopened or fixed since: 12h, 7d, 2027-01-31."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def chosen(  # noqa: PLR0913 - one argument an option
    now: Callable[[], datetime],
    *,
    states: Sequence[str] = (),
    severities: Sequence[str] = (),
    rules: Sequence[str] = (),
    sources: Sequence[str] = (),
    targets: Sequence[str] = (),
    path: str | None = None,
    scanner: str | None = None,
    in_head: bool | None = None,
    since: str | None = None,
    finding_ids: Sequence[int] = (),
) -> FindingFilter:
    """Build the filter out of the options."""
    named: tuple[Status, ...] = tuple(each for each in STATUSES if each in states)
    statuses = None if "all" in states else named or ACTIONABLE
    return FindingFilter(
        statuses=statuses,
        severities=tuple(severities) or None,
        rules=tuple(rules) or None,
        sources=tuple(sources) or None,
        targets=tuple(targets) or None,
        path=parse(path).regex() if path is not None else None,
        scanner=scanner,
        in_head=in_head,
        since=moment(since, now, back=True) if since is not None else None,
        finding_ids=tuple(finding_ids) or None,
    )


def moment(text: str, now: Callable[[], datetime], *, back: bool) -> datetime:
    """Read a duration from now (backwards for ``--since``), a date, or a time in ISO 8601 (UTC when it has no zone)."""
    duration = _DURATION.fullmatch(text.strip())
    try:
        if duration is not None:
            span = timedelta(seconds=int(duration[1]) * _SECONDS[duration[2]])
            return now() - span if back else now() + span
        read = datetime.fromisoformat(text.strip())
    except (ValueError, OverflowError) as error:
        message = f"{text!r} is no time; write a duration such as 12h or 30d, or a date such as 2027-01-31"
        raise UsageFault(message) from error
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)


def somebody(who: str | None) -> str:
    """Who decides: as given, else the user of this process."""
    if who is not None:
        return who
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return ""


def confirm(what: str, *, yes: bool) -> None:
    """Ask before many rows are changed; without a terminal ``--yes`` is needed."""
    click.echo(what, err=True)
    if yes:
        return
    if not sys.stdin.isatty():
        message = "nothing was changed: say --yes to go ahead, or --dry-run to only count"
        raise UsageFault(message)
    click.confirm("Go ahead?", abort=True, err=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns; foreign text is cleaned, long cells are cut."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        click.echo("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    text = "" if value is None else display(str(value))
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"

"""What a terminal gets: colour where it is wanted, tables that fit, times and sizes in words."""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import IO, Any

import click

from ...schema.text import display

GOOD, BAD, WARN, DIM, STRONG = "32", "31", "33", "2", "1"
_CELL = 60
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def colourful(stream: IO[str] | None) -> bool:
    """Whether ``stream`` may be painted: ``NO_COLOR``, then ``FORCE_COLOR``, then whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, code: str, stream: IO[str] | None = None) -> str:
    """``text`` in a colour, when the stream (stdout) shows colours."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and text and colourful(stream or sys.stdout) else text


def say(text: str = "") -> None:
    """Talk: to stderr, never to where data goes."""
    click.echo(text, err=True)


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[int] = (),
    codes: Sequence[str] | None = None,
) -> None:
    """Print rows in columns on stdout; foreign text is cleaned, long cells are cut on a terminal only.

    ``right`` are the columns whose cells stand at the right; ``codes`` paint whole rows.
    """
    narrow = sys.stdout.isatty()
    cells = [[_cell(value, narrow=narrow) for value in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(head), *cells]) for column in range(len(head))]
    if narrow:
        _fit(widths, shutil.get_terminal_size().columns, right)
    click.echo(paint(_line(head, widths, right), STRONG))
    for index, row in enumerate(cells):
        line = _line(row, widths, right)
        click.echo(paint(line, codes[index]) if codes else line)


def _fit(widths: list[int], columns: int, right: Sequence[int]) -> None:
    """Narrow the widest text columns until a line fits the terminal."""
    least = 12
    while sum(widths) + 2 * (len(widths) - 1) > columns:
        wide = max(
            (column for column in range(len(widths)) if column not in right), key=lambda c: widths[c], default=None
        )
        if wide is None or widths[wide] <= least:
            return
        widths[wide] -= 1


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    parts: list[str] = []
    for column, (value, width) in enumerate(zip(row, widths, strict=True)):
        text = value if len(value) <= width else value[: width - 1] + "…"
        parts.append(text.rjust(width) if column in right else text.ljust(width))
    return "  ".join(parts).rstrip()


def _cell(value: object, *, narrow: bool) -> str:
    text = "" if value is None else display(str(value))
    return text if not narrow or len(text) <= _CELL else text[: _CELL - 1] + "…"


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 target``, ``1,234 targets``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration(seconds: float | timedelta | None) -> str:
    """A duration in its two largest units: ``42s``, ``3m 5s``, ``2h 10m``, ``4d 3h``."""
    if seconds is None:
        return ""
    total = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if total < 0:
        return "0s"
    whole = int(total)
    if total < 10:  # noqa: PLR2004 - below ten seconds a tenth says something
        return f"{total:.1f}s" if total != whole else f"{whole}s"
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE}s" if whole % _MINUTE else f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE}m"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR}h"


def moment(at: datetime | None, now: datetime) -> str:
    """A time as a person reads it: how long ago, or in how long."""
    if at is None:
        return ""
    away = (at - now).total_seconds()
    if abs(away) < 1:
        return "now"
    return f"in {duration(away)}" if away > 0 else f"{duration(-away)} ago"


def yet(at: datetime | None, now: datetime) -> str:
    """How long until a time: ``another 5m``."""
    return f"another {duration(max(0.0, (at - now).total_seconds()))}" if at is not None else ""


def plain(value: Any) -> Any:
    """A record's value as JSON has it: times in ISO 8601, durations in seconds, bytes in hex."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return round(value.total_seconds(), 3)
    if isinstance(value, bytes):
        return value.hex()
    return value

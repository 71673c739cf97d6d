"""What commands share: the configuration, the database, durations, filters, JSON envelopes, confirmation."""

import getpass
import json
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

import click

from ...schema.database import Connection
from ...schema.errors import UsageFault
from ..config import Configuration, load
from ..wiring import Store, open_store
from .paint import plain, say

SCHEMA = 1
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, None: 1}
_MOST_SECONDS = 366 * 86_400 * 10

Command = TypeVar("Command", bound=Callable[..., Any])


class Duration(click.ParamType[timedelta, Any]):
    """A duration: ``75s``, ``5m``, ``2h``, ``1h30m``; a bare number is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read one."""
        if isinstance(value, timedelta):
            return value
        text = str(value).strip().lower()
        seconds, position = 0.0, 0
        while (match := _DURATION.match(text, position)) is not None and match.end() > position:
            seconds += float(match[1]) * _SECONDS[match[2]]
            position = match.end()
        if position != len(text) or not text or seconds > _MOST_SECONDS:
            self.fail(f"{value!r} is no duration; write 75s, 5m, 2h or 1h30m", param, ctx)
        return timedelta(seconds=seconds)


DURATION = Duration()


def config_option(command: Command) -> Command:
    """Let a command take ``--config`` itself, as well as ``resweep --config FILE COMMAND``."""

    def keep(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            ctx.find_root().meta["resweep.config"] = value

    option = click.option(
        "--config", metavar="FILE", expose_value=False, callback=keep, is_eager=True, help="Configuration file."
    )
    return option(command)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document for scripts.")
limit_option = click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 100_000))
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def configuration(overrides: Mapping[tuple[str, ...], tuple[Any, str]] | None = None) -> Configuration:
    """Read the configuration of this call. Raises ``ConfigFault``."""
    chosen = click.get_current_context().find_root().meta.get("resweep.config")
    return load(Path(chosen) if chosen else None, environ=os.environ, cwd=Path.cwd(), overrides=overrides)


@contextmanager
def opened(
    role: str = "command", settings: Configuration | None = None, *, schema: str = "check"
) -> Generator[Store, None, None]:
    """Reach the database for a command; the embedded server is started for its length when it does not run."""
    chosen = settings or configuration()
    with open_store(chosen, role=role, pool_size=2, schema=schema, tell=_tell_start) as store:
        yield store


def _tell_start(words: str) -> None:
    if sys.stderr.isatty():
        say(f"{words} …")


@contextmanager
def transaction(settings: Configuration | None = None) -> Generator[Connection, None, None]:
    """One transaction of a command."""
    with opened(settings=settings) as store, store.database.transaction() as conn:
        yield conn


def document(record: Any) -> Any:
    """A record as JSON has it, with the names of its fields."""
    if is_dataclass(record) and not isinstance(record, type):
        return {each.name: document(getattr(record, each.name)) for each in fields(record)}
    if isinstance(record, Mapping):
        pairs = cast("Mapping[object, object]", record).items()
        return {str(key.value if isinstance(key, Enum) else key): document(value) for key, value in pairs}
    if isinstance(record, (list, tuple, set, frozenset)):
        return [document(each) for each in cast("Iterable[object]", record)]
    if isinstance(record, Enum):
        return record.value
    if isinstance(record, (UUID, Path)):
        return str(record)
    return plain(record)


def print_json(items: Sequence[Any], *, total: int | None = None, **more: Any) -> None:
    """Print a listing's envelope."""
    envelope = {
        "schema": SCHEMA,
        "items": [document(item) for item in items],
        "total": len(items) if total is None else total,
    }
    click.echo(json.dumps(envelope | {key: document(value) for key, value in more.items()}, ensure_ascii=True))


def print_document(value: Mapping[str, Any]) -> None:
    """Print one thing that is no listing."""
    click.echo(json.dumps({"schema": SCHEMA} | document(value), ensure_ascii=True))


def confirm(what: str, *, yes: bool) -> None:
    """Ask before many rows are changed; without a terminal ``--yes`` is needed."""
    say(what)
    if yes:
        return
    if not sys.stdin.isatty():
        message = "nothing was changed: say --yes to go ahead, or --dry-run to only look"
        raise UsageFault(message)
    click.confirm("Go ahead?", abort=True, err=True)


def somebody() -> str:
    """Who runs this process, for the audit."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else ""

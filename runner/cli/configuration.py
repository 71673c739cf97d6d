"""``resweep config``: check the configuration, and show every value with where it came from."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import click
from pydantic import BaseModel

from ..config import Configuration
from ..config_keys import NAMED, variable
from ..config_sources import COMMON, SourceConfig
from .frame import config_option, configuration, json_option, print_document, print_json
from .paint import DIM, count, paint, say, table

_USERINFO = re.compile(r"://[^/@\s]+@")
_DERIVED = ("interval_seconds", "updated_rescan_cooldown_seconds")


@click.group("config")
def config() -> None:
    """Check and show the configuration."""


@config.command("check")
@config_option
@json_option
def config_check(*, as_json: bool) -> None:
    """Read everything as a start would, secrets included; 2 when something is wrong."""
    settings = configuration()
    settings.database_url()
    settings.direct_url()
    settings.scheduler_enabled(by_command=True)
    web = settings.settings.web
    for key, file in (("viewer_token_file", web.viewer_token_file), ("operator_token_file", web.operator_token_file)):
        settings.secret(variable=None, file=file, what=f"web.{key}")
    for source in settings.sources:
        if source.enabled:
            what = f"sources.{source.name}: the token"
            settings.secret(variable=source.token_env, file=source.token_file, what=what)
    _scanners(settings)
    enabled = [source for source in settings.sources if source.enabled]
    if as_json:
        print_document({"file": settings.file, "data_dir": settings.data_dir, "sources": [s.name for s in enabled]})
        return
    where = str(settings.file) if settings.file else "no configuration file; defaults and environment"
    click.echo(f"good: {where}; {count(len(enabled), 'source')}; data in {settings.data_dir}")


def _scanners(settings: Configuration) -> None:
    """Make every scanner that somebody names: a wrong command line is a wrong configuration."""
    from ..wiring import make_scanner  # noqa: PLC0415 - loads the scanners' side

    names = {name for source in settings.sources for name in source.scanners} | set(settings.settings.scanners)
    for name in sorted(names):
        make_scanner(name, settings)


@config.command("show")
@click.option("--origin", is_flag=True, help="Say where each value came from.")
@click.option("--set", "only_set", is_flag=True, help="Only what was set, not the defaults.")
@click.option("--env", "as_env", is_flag=True, help="Show the environment variable of each key.")
@config_option
@json_option
def config_show(*, origin: bool, only_set: bool, as_env: bool, as_json: bool) -> None:
    """Show every key with its value; passwords are masked, secrets are never read."""
    settings = configuration()
    rows = [row for row in values(settings) if not only_set or row[2] != "default"]
    if as_json:
        print_json(
            [
                {"key": ".".join(key), "value": value, "origin": where, "variable": variable(key)}
                for key, value, where in rows
            ]
        )
        return
    head = ["KEY", "VALUE"] + (["ORIGIN"] if origin else []) + (["VARIABLE"] if as_env else [])
    table(
        head,
        [
            [".".join(key), _shown(value)] + ([where] if origin else []) + ([variable(key)] if as_env else [])
            for key, value, where in rows
        ],
    )
    if not settings.file:
        say(paint("no configuration file: resweep.toml in this folder, --config or RESWEEP_CONFIG", DIM))


def values(settings: Configuration) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    """Every key with its value as it holds, and its origin."""
    for section in type(settings.settings).model_fields:
        value = getattr(settings.settings, section)
        if section == "data_dir":
            yield (section,), settings.data_dir, settings.origin((section,))
        elif section == "sources":
            continue
        elif section in NAMED:
            for name, table_ in value.items():
                yield from _section(settings, (section, name), table_)
        elif isinstance(value, BaseModel):
            yield from _section(settings, (section,), value)
    for source in settings.sources:
        yield from _source(settings, source)


def _section(
    settings: Configuration, prefix: tuple[str, ...], section: BaseModel
) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    for field in type(section).model_fields:
        key = (*prefix, field)
        where = settings.origin(key)
        if prefix == ("defaults",) and where == "default":
            continue
        value = getattr(section, field)
        if key == ("workers", "sweep_seconds"):
            value = settings.sweep_seconds
        yield key, _masked(value), where


def _source(settings: Configuration, source: SourceConfig) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    prefix = ("sources", source.name)
    given = settings.settings.sources[source.name]
    yield (*prefix, "kind"), source.kind, settings.origin((*prefix, "kind"))
    for field in ("scope", "paths", "urls"):
        value = getattr(given, field)
        if value is not None:
            yield (*prefix, field), value, settings.origin((*prefix, field))
    for field in (*COMMON, *_DERIVED):
        yield (*prefix, field), _masked(getattr(source, field)), settings.origin((*prefix, field))


def _masked(value: Any) -> Any:
    return _USERINFO.sub("://…@", value) if isinstance(value, str) else value


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, cast("Sequence[object]", value))) or "-"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)

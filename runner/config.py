"""The configuration: one TOML file, the environment over it, defaults under it, and where each value came from.

Anything unknown or out of range is an error before anything starts, and all of them are told at once (product.md,
"Configuration").
"""

import ipaddress
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from ..schema.errors import ConfigFault
from .config_file import TomlFile, read_toml
from .config_keys import NAME, NAMED, PREFIX, Key, read_text, slots, suggest_key, suggest_variable, variables
from .config_model import Settings, layered
from .config_sources import SourceConfig, resolve

DEFAULT_FILE = "resweep.toml"
KNOWN_VARIABLES = frozenset({"RESWEEP_CONFIG", "RESWEEP_ENV"})
TEST_PREFIX = "RESWEEP_TEST_"
_SHOWN = 60
_SECRET_KEYS = frozenset({"url", "direct_url", "https_proxy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What was configured, and where. Secrets are not in it: ``secret`` reads one when it is needed."""

    settings: Settings
    sources: tuple[SourceConfig, ...]  # configured ones, by name, the disabled too
    origins: Mapping[Key, str]  # of every key that was set; the rest are defaults
    file: Path | None
    folder: Path  # relative paths in the file start here
    environ: Mapping[str, str] = field(repr=False)

    @property
    def data_dir(self) -> Path:
        """The folder of everything local, absolute."""
        chosen = self.settings.data_dir
        if chosen is None:
            import platformdirs  # noqa: PLC0415 - not needed when a folder was chosen

            return Path(platformdirs.user_data_dir("resweep", appauthor=False))
        return self.path(chosen)

    def path(self, path: Path) -> Path:
        """A path from the configuration, absolute."""
        return Path(os.path.abspath(self.folder / path))  # noqa: PTH100 - resolve() would follow links

    @property
    def sweep_seconds(self) -> float:
        """How often expired leases are looked for: as set, else a sixth of the lease."""
        workers = self.settings.workers
        return workers.sweep_seconds if ("workers", "sweep_seconds") in self.origins else workers.lease_seconds / 6

    def origin(self, key: Key) -> str:
        """Where the value of a key came from."""
        return self.origins.get(key, "default")

    def secret(self, *, variable: str | None, file: Path | None, what: str) -> str | None:
        """Read a secret from the variable or file that names it; None when neither is set.

        Raises ``ConfigFault`` when what was named is not there or empty.
        """
        if variable is not None:
            value = self.environ.get(variable, "")
            if not value.strip():
                raise ConfigFault(f"{what}: the variable {variable} is not set or empty; set it before starting")
            return value.strip()
        if file is None:
            return None
        path = self.path(file)
        try:
            value = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigFault(f"{what}: {path} cannot be read: {reason}; create it, readable by this user") from error
        if not value:
            raise ConfigFault(f"{what}: {path} is empty; write the secret into it")
        return value

    def database_url(self) -> str | None:
        """The address of the given PostgreSQL, password included; None = the embedded one."""
        database = self.settings.database
        return database.url or self.secret(variable=database.url_env, file=database.url_file, what="database.url")

    def direct_url(self) -> str | None:
        """The address for locks and LISTEN where a transaction pooler stands in front; None = the same."""
        database = self.settings.database
        return database.direct_url or self.secret(
            variable=database.direct_url_env, file=database.direct_url_file, what="database.direct_url"
        )

    def scheduler_enabled(self, *, by_command: bool) -> bool:
        """Whether passes run by themselves: ``SYNC_SCHEDULER``, else the key, else the command or production (D67)."""
        switch = self.environ.get("SYNC_SCHEDULER", "")
        if switch:
            if switch not in {"0", "1"}:
                raise ConfigFault(f"SYNC_SCHEDULER is {switch[:_SHOWN]!r}; set it to 0 or 1, or unset it")
            return switch == "1"
        if self.settings.scheduler.enabled is not None:
            return self.settings.scheduler.enabled
        return by_command or self.environ.get("RESWEEP_ENV") == "production"


def load(
    path: Path | None = None,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    overrides: Mapping[Key, tuple[Any, str]] | None = None,
) -> Configuration:
    """Read the file (``path``, else ``RESWEEP_CONFIG``, else ``resweep.toml`` in ``cwd`` if there), then the rest.

    ``overrides`` are options of a command: key to (value, origin). Raises ``ConfigFault`` that lists everything wrong.
    """
    file = _file(path, environ, cwd)
    values: dict[str, Any] = dict(file.values) if file else {}
    faults: list[str] = []
    names = {section: tuple(values.get(section, ())) for section in NAMED if _is_table(values.get(section, {}))}
    faults += _bad_names(names, file)
    names["sources"] = (*names.get("sources", ()), *_sources_of(environ, names.get("sources", ())))
    known = variables(names)
    from_environ, origins = _environment(environ, known, _named_variables(values, environ), faults)
    for key, (value, origin) in (overrides or {}).items():
        _put(from_environ, key, value)
        origins[key] = origin
    if file is not None:
        for slot in slots(names):
            if slot.key not in origins and _has(values, slot.key):
                origins[slot.key] = file.where(slot.key)
    try:
        settings = layered(from_environ, values)
    except ValidationError as error:
        faults += _explained(error, origins, file)
        raise ConfigFault(_together(faults)) from None  # pydantic's own text would show the values
    faults += _contradictions(settings, origins)
    sources = _resolved(settings, origins, file.path.parent if file else cwd, faults)
    if faults:
        raise ConfigFault(_together(faults))
    return Configuration(
        settings=settings,
        sources=sources,
        origins=origins,
        file=file.path if file else None,
        folder=file.path.parent if file else cwd,
        environ=environ,
    )


def _file(path: Path | None, environ: Mapping[str, str], cwd: Path) -> TomlFile | None:
    if path is None and environ.get("RESWEEP_CONFIG"):
        path = Path(environ["RESWEEP_CONFIG"])
    if path is not None:
        return read_toml(cwd / path.expanduser())
    default = cwd / DEFAULT_FILE
    return read_toml(default) if default.exists() else None


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _bad_names(names: Mapping[str, Iterable[str]], file: TomlFile | None) -> list[str]:
    return [
        f"{file.where((section, name)) if file else section}: {section}.{name!r} is no name: letters, digits, '.', '_' "
        "and '-', at most 63, beginning with a letter or digit"
        for section, chosen in names.items()
        for name in chosen
        if not NAME.match(name)
    ]


def _sources_of(environ: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """Sources that only the environment names: those of which ``…__KIND`` is set."""
    prefix, suffix = f"{PREFIX}SOURCES__", "__KIND"
    taken = set(variables({"sources": known}))
    found: list[str] = []
    for name in environ:
        if name.startswith(prefix) and name.endswith(suffix) and name not in taken:
            chosen = name[len(prefix) : -len(suffix)].lower()
            if NAME.match(chosen):
                found.append(chosen)
    return found


def _named_variables(values: Mapping[str, Any], environ: Mapping[str, str]) -> set[str]:
    """Variables that some ``…_env`` key names: secrets may be called ``RESWEEP_…`` too."""
    found = {text for name, text in environ.items() if name.startswith(PREFIX) and name.endswith("_ENV")}

    def walk(table: Mapping[str, Any]) -> None:
        for key, value in table.items():
            if isinstance(value, dict):
                walk(cast("Mapping[str, Any]", value))
            elif key.endswith("_env") and isinstance(value, str):
                found.add(value)

    walk(values)
    return found


def _environment(
    environ: Mapping[str, str], known: Mapping[str, Any], named: set[str], faults: list[str]
) -> tuple[dict[str, Any], dict[Key, str]]:
    values: dict[str, Any] = {}
    origins: dict[Key, str] = {}
    for name in sorted(environ):
        if (
            not name.upper().startswith(PREFIX)
            or name in KNOWN_VARIABLES
            or name.startswith(TEST_PREFIX)
            or name in named
        ):
            continue
        slot = known.get(name)
        if slot is None:
            faults.append(f"{name} is no variable of resweep; {suggest_variable(name, [*known, *KNOWN_VARIABLES])}")
            continue
        try:
            _put(values, slot.key, read_text(environ[name], slot.annotation))
        except ValueError as error:
            faults.append(f"{name} {error}")
        origins[slot.key] = name
    return values, origins


def _put(values: dict[str, Any], key: Key, value: Any) -> None:
    for part in key[:-1]:
        values = values.setdefault(part, {})
    values[key[-1]] = value


def _has(values: Mapping[str, Any], key: Key) -> bool:
    table: Any = values
    for part in key:
        if not isinstance(table, dict) or part not in table:
            return False
        table = cast("Mapping[str, Any]", table)[part]
    return True


def _explained(error: ValidationError, origins: Mapping[Key, str], file: TomlFile | None) -> list[str]:
    """One sentence a fault: where, which key, what is wrong, what to write."""
    faults: list[str] = []
    for each in error.errors(include_url=False, include_context=False):
        place = tuple(str(part) for part in each["loc"])
        key = _key_of(place)
        where = origins.get(key) or (file.where(key) if file else "")
        label = ".".join(key)
        if each["type"] == "extra_forbidden":
            faults.append(f"{where}: unknown key {label}; {suggest_key(key)}")
        elif each["type"] == "missing":
            faults.append(f"{where or '.'.join(key[:-1])}: {label} is missing; every source needs a kind")
        else:
            said = each["msg"].removeprefix("Value error, ").removeprefix("Input ")
            if each["type"] in {"model_type", "dict_type", "model_attributes_type"}:
                said = f"should be a table: write [{label}] and its keys below"
            item = f"[{place[len(key)]}]" if len(place) > len(key) and place[len(key)].isdigit() else ""
            faults.append(f"{where}: {label}{item}{_value(key, each.get('input'))} {said}")
    return faults


def _key_of(place: Key) -> Key:
    """The key inside pydantic's place, without list positions and union members."""
    if place[0] in NAMED:
        return place[:3]
    return place[:2]


def _value(key: Key, value: Any) -> str:
    if key[-1] in _SECRET_KEYS or "token" in key[-1] or isinstance(value, (dict, list, tuple)):
        return ""
    text = "true" if value is True else "false" if value is False else repr(value)
    return f" = {text}:" if len(text) <= _SHOWN else f" = {text[:_SHOWN]}…:"


def _contradictions(settings: Settings, origins: Mapping[Key, str]) -> list[str]:
    """Keys that are right by themselves and wrong together."""
    faults: list[str] = []
    database = settings.database
    for stem in ("url", "direct_url"):
        given = [name for name in (stem, f"{stem}_env", f"{stem}_file") if getattr(database, name) is not None]
        if len(given) > 1:
            faults.append(f"database.{given[0]} and database.{given[1]} are both set; keep one of them")
    direct = database.direct_url or database.direct_url_env or database.direct_url_file
    if direct and not (database.url or database.url_env or database.url_file):
        faults.append("database.direct_url is set without database.url; set both, or neither for the embedded server")
    for name, tenant in settings.tenants.items():
        if tenant.webhook_secret_env and tenant.webhook_secret_file:
            faults.append(f"tenants.{name}: webhook_secret_env and webhook_secret_file are both set; keep one of them")
    if settings.web.viewer_token_file is None and settings.web.operator_token_file is None:
        for section, listen in (
            ("web", settings.web.listen),
            ("metrics", settings.metrics.listen),
            ("webhooks", settings.webhooks.listen),
        ):
            if listen and not is_loopback(listen):
                where = origins.get((section, "listen"), "default")
                faults.append(
                    f"{where}: {section}.listen = {listen!r} can be reached from other machines and nobody has to log "
                    "in; set web.viewer_token_file and web.operator_token_file, or listen on 127.0.0.1"
                )
    if (
        settings.web.require_login
        and settings.web.viewer_token_file is None
        and settings.web.operator_token_file is None
    ):
        faults.append("web.require_login is on and there is no token to log in with; set web.operator_token_file")
    return faults


def is_loopback(listen: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if listen == "off":
        return True
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _resolved(settings: Settings, origins: dict[Key, str], folder: Path, faults: list[str]) -> tuple[SourceConfig, ...]:
    sources: list[SourceConfig] = []
    for name in sorted(settings.sources):
        given = settings.sources[name]
        try:
            source, inherited = resolve(name, given, settings, folder=folder)
        except ConfigFault as fault:
            faults.append(f"{origins.get(('sources', name, 'kind'), name)}: {fault}")
            continue
        for field_name in inherited:
            origins[("sources", name, field_name)] = (
                f"defaults.{field_name}, {origins.get(('defaults', field_name), '')}"
            )
        sources.append(source)
    return tuple(sources)


def _together(faults: list[str]) -> str:
    if len(faults) == 1:
        return faults[0]
    return f"{len(faults)} things are wrong in the configuration:\n" + "\n".join(f"  {fault}" for fault in faults)

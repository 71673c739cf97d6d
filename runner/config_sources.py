"""What one source does: its own settings, then ``defaults``, then what its kind starts with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..schema.errors import ConfigFault, UsageFault
from ..sources.catalog import adapter, configured_specs
from ..sources.specs import Form, Spec
from .config_model import Settings, SharedSettings, SourceSettings
from .scanners.presets import PRESETS

BUILT_IN = ("kingfisher", "detect-secrets")
_ALIASES = {"hf": "huggingface"}
_GIT_FOLDER_SECONDS = 10.0
_GIT_ADDRESS_SECONDS = 300.0
_PROVIDER_SECONDS = 900.0
_PROVIDER_LEAST_SECONDS = 60.0
_GIT_LEAST_SECONDS = 1.0
_COOLDOWN_SECONDS = 21_600.0
_GITLAB_COOLDOWN_SECONDS = 86_400.0
_CAP_BY_HAND = 100

COMMON: Mapping[str, Any] = MappingProxyType(
    {
        "api_url": None,
        "token_env": None,
        "token_file": None,
        "app_id": None,
        "private_key_file": None,
        "tenant": "default",
        "enabled": True,
        "include": (),
        "exclude": (),
        "max_pages": 10,
        "per_page": 100,
        "max_results": 10_000,
        "updated_rescan_enabled": False,
        "updated_rescan_max_per_cycle": 1,
        "rescan_on_upgrade_max_per_cycle": 0,
        "refresh_registry": False,
        "backlog_first": "skip",
        "order": "oldest_change",
        "include_archived": True,
        "include_forks": True,
        "refs": "heads+tags",
        "max_in_progress": None,
        "max_future_skew_seconds": 600.0,
        "scanners": ("kingfisher",),
    }
)
"""What every kind starts with; a configured source starts with the rollout switches off (T49, T50)."""

BY_HAND: Mapping[str, Any] = MappingProxyType(
    {
        "updated_rescan_enabled": True,
        "updated_rescan_max_per_cycle": _CAP_BY_HAND,
        "updated_rescan_cooldown_seconds": 0.0,
    }
)
"""What a spec on the command line starts with, because a person asked; ``defaults`` does not change these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """One source with every setting decided."""

    name: str
    kind: str
    specs: tuple[Spec, ...]
    ad_hoc: bool
    api_url: str | None
    token_env: str | None
    token_file: Path | None
    app_id: int | None
    private_key_file: Path | None
    tenant: str
    enabled: bool
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    interval_seconds: float
    max_pages: int
    per_page: int
    max_results: int
    updated_rescan_enabled: bool
    updated_rescan_max_per_cycle: int
    updated_rescan_cooldown_seconds: float
    rescan_on_upgrade_max_per_cycle: int
    refresh_registry: bool
    backlog_first: str
    order: str
    include_archived: bool
    include_forks: bool
    refs: str
    max_in_progress: int | None
    max_future_skew_seconds: float
    scanners: tuple[str, ...]

    @property
    def scope(self) -> str:
        """What it covers, as text."""
        return " ".join(spec.scope for spec in self.specs)


def resolve(
    name: str, given: SourceSettings, settings: Settings, *, folder: Path
) -> tuple[SourceConfig, frozenset[str]]:
    """Decide every setting of a configured source; also gives which of them ``defaults`` decided.

    Raises ``ConfigFault``.
    """
    kind = _ALIASES.get(given.kind, given.kind)
    specs: tuple[Spec, ...] = ()
    try:
        specs = configured_specs(kind, scope=given.scope, paths=given.paths or (), urls=given.urls or (), cwd=folder)
        if given.enabled is not False:
            adapter(kind)
    except UsageFault as fault:
        message = f"sources.{name}: {fault}"
        raise ConfigFault(message) from fault
    values, inherited = _decide(kind, specs, given, settings.defaults, {})
    source = SourceConfig(name=name, kind=kind, specs=specs, ad_hoc=False, **values)
    _check(source, settings)
    return source, inherited


def from_spec(spec: Spec, settings: Settings) -> SourceConfig:
    """The source behind a spec of the command line; its canonical text is its name. Raises ``UsageFault``."""
    adapter(spec.kind)
    values, _ = _decide(spec.kind, (spec,), None, settings.defaults, BY_HAND)
    values["enabled"] = True
    source = SourceConfig(name=spec.canonical, kind=spec.kind, specs=(spec,), ad_hoc=True, **values)
    _check(source, settings)
    return source


def _decide(
    kind: str, specs: Sequence[Spec], given: SharedSettings | None, defaults: SharedSettings, by_hand: Mapping[str, Any]
) -> tuple[dict[str, Any], frozenset[str]]:
    values: dict[str, Any] = dict(COMMON) | {
        "interval_seconds": _interval(kind, specs),
        "updated_rescan_cooldown_seconds": _GITLAB_COOLDOWN_SECONDS if kind == "gitlab" else _COOLDOWN_SECONDS,
    }
    inherited: set[str] = set()
    for key in values:
        own = getattr(given, key) if given is not None else None
        shared = getattr(defaults, key)
        if own is not None:
            values[key] = own
        elif key in by_hand:
            values[key] = by_hand[key]
        elif shared is not None:
            values[key] = shared
            inherited.add(key)
    return values, frozenset(inherited)


def _interval(kind: str, specs: Sequence[Spec]) -> float:
    if kind != "git":
        return _PROVIDER_SECONDS
    return _GIT_FOLDER_SECONDS if all(spec.form is Form.FOLDER for spec in specs) else _GIT_ADDRESS_SECONDS


def _check(source: SourceConfig, settings: Settings) -> None:
    key = f"sources.{source.name}"
    least = _GIT_LEAST_SECONDS if source.kind == "git" else _PROVIDER_LEAST_SECONDS
    if 0 < source.interval_seconds < least:
        raise ConfigFault(
            f"{key}.interval_seconds = {source.interval_seconds:g}: should be 0 (off) or at least {least:g} for kind "
            f"{source.kind}"
        )
    if source.token_env and source.token_file:
        raise ConfigFault(f"{key}: token_env and token_file are both set; keep one of them")
    for name in source.scanners:
        if name not in BUILT_IN and name not in PRESETS and name not in settings.scanners:
            known = ", ".join(sorted({*BUILT_IN, *PRESETS, *settings.scanners}))
            raise ConfigFault(f"{key}.scanners names {name!r}, which is no scanner; known are {known}")
    if len(set(source.scanners)) != len(source.scanners):
        raise ConfigFault(f"{key}.scanners names a scanner twice; name each once")
    if source.tenant != "default" and source.tenant not in settings.tenants:
        raise ConfigFault(f"{key}.tenant = {source.tenant!r}: there is no [tenants.{source.tenant}]; add it")

"""The settings table: every key with its type, default and range (product.md, "Configuration")."""

import re
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@|(?:^|[\s?&])password\s*=", re.IGNORECASE)
_USERINFO = re.compile(r"://[^/@\s]*@")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})\Z")
_MAX_PORT = 65535


def _no_password(text: str) -> str:
    if _PASSWORD.search(text):
        message = "holds a password; put the whole address into a variable or file and name it with url_env or url_file"
        raise ValueError(message)
    return text


def _no_userinfo(text: str) -> str:
    if _USERINFO.search(text):
        message = "holds a user or password; credentials come from token_env or token_file"
        raise ValueError(message)
    return text


def _a_variable(text: str) -> str:
    if not _VARIABLE.match(text):
        message = "should be the name of an environment variable, not a value"
        raise ValueError(message)
    return text


def _a_listen(text: str) -> str:
    if text == "off":
        return text
    match = _LISTEN.match(text)
    if match is None or int(match[3]) > _MAX_PORT:
        message = 'should be "HOST:PORT", such as "127.0.0.1:8780" or "[::1]:8780", or "off"'
        raise ValueError(message)
    return text


def _never(value: Any) -> Any:
    return None if value == "never" else value


def _home(path: Path) -> Path:
    return path.expanduser()


Number = Annotated[int, Field(strict=True)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
File = Annotated[Path, AfterValidator(_home)]
Words = tuple[Annotated[str, Field(strict=True, min_length=1)], ...]
Variable = Annotated[str, Field(strict=True), AfterValidator(_a_variable)]
Dsn = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_no_password)]
Address = Annotated[str, Field(strict=True, pattern=r"^https?://\S+$"), AfterValidator(_no_userinfo)]
Listen = Annotated[str, Field(strict=True), AfterValidator(_a_listen)]
Text = Annotated[str, Field(strict=True, min_length=1)]

Kind = Literal["git", "github", "gitlab", "huggingface", "hf", "dockerhub"]


class Section(BaseModel):
    """A table of the file: nothing unknown in it, nothing changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DatabaseSettings(Section):
    """Where PostgreSQL is; with none of the addresses the embedded one is used."""

    url: Dsn | None = None
    url_env: Variable | None = None
    url_file: File | None = None
    direct_url: Dsn | None = None
    direct_url_env: Variable | None = None
    direct_url_file: File | None = None
    pool_size: Annotated[Number, Field(ge=2, le=1000)] | None = None  # None: from workers.concurrency


class SchedulerSettings(Section):
    """Whether discovery and the other passes run by themselves."""

    enabled: Flag | None = None  # None: the command decides


class WorkerSettings(Section):
    """The worker pool of one process."""

    concurrency: Annotated[Number, Field(ge=1, le=1024)] = 4
    lease_seconds: Annotated[Real, Field(ge=2, le=86_400)] = 60.0
    sweep_seconds: Annotated[Real, Field(ge=0.1, le=3_600)] = 10.0
    grace_seconds: Annotated[Real, Field(ge=0, le=86_400)] = 30.0
    max_attempts: Annotated[Number, Field(ge=1, le=1000)] = 5
    max_in_progress: Annotated[Number, Field(ge=1)] | None = None


class ScanSettings(Section):
    """What one scan may use, and the checkout cache."""

    seconds: Annotated[Real, Field(ge=1, le=604_800)] = 1800.0
    memory_mb: Annotated[Number, Field(ge=64, le=1 << 24)] = 2048
    processes: Annotated[Number, Field(ge=4, le=1 << 20)] = 256
    file_size_mb: Annotated[Number, Field(ge=1, le=1 << 24)] = 2048
    output_mb: Annotated[Number, Field(ge=1, le=1 << 20)] = 64
    cache_gb: Annotated[Real, Field(gt=0, le=1 << 20)] = 20.0


class WebSettings(Section):
    """Pages, API and probes."""

    listen: Listen = "127.0.0.1:8780"
    viewer_token_file: File | None = None
    operator_token_file: File | None = None
    require_login: Flag = False


class MetricsSettings(Section):
    """Where ``/metrics`` is served; None: with the pages."""

    listen: Listen | None = None


class WebhookSettings(Section):
    """Where deliveries are received; None: with the pages."""

    listen: Listen | None = None


class FindingSettings(Section):
    """Identity of findings, and whether a secret may be shown once."""

    key_file: File | None = None  # None: generated below data_dir
    allow_reveal: Flag = False


class RetentionSettings(Section):
    """How long what is over is kept, in days; None: for ever."""

    history_days: Annotated[Annotated[Number, Field(ge=1)] | None, BeforeValidator(_never)] = 365
    cycles_days: Annotated[Annotated[Number, Field(ge=1)] | None, BeforeValidator(_never)] = 90
    deliveries_days: Annotated[Annotated[Number, Field(ge=1)] | None, BeforeValidator(_never)] = 30
    audit_days: Annotated[Annotated[Number, Field(ge=1)] | None, BeforeValidator(_never)] = 730
    retired_days: Annotated[Annotated[Number, Field(ge=1)] | None, BeforeValidator(_never)] = None


class LogSettings(Section):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "text"] | None = None  # None: json unless a terminal


class TenantSettings(Section):
    """One tenant's secrets."""

    webhook_secret_file: File | None = None
    webhook_secret_env: Variable | None = None


class NetworkSettings(Section):
    """How every client and git reach the network."""

    https_proxy: Annotated[str, Field(strict=True, pattern=r"^https?://\S+$")] | None = None
    ca_file: File | None = None
    ssh_key_file: File | None = None


class ScannerSettings(Section):
    """A scanner: a built-in or preset with single settings changed, or any command."""

    command: Words | None = None
    since_command: Words | None = None
    format: Literal["sarif", "jsonl"] | None = None
    findings_exit_codes: tuple[Annotated[Number, Field(ge=0, le=255)], ...] | None = None
    needs: Literal["repository", "checkout"] | None = None
    seconds: Annotated[Real, Field(ge=1, le=604_800)] | None = None


class SharedSettings(Section):
    """What a source may set and ``defaults`` may set for all of them; None: not set here."""

    api_url: Address | None = None
    token_env: Variable | None = None
    token_file: File | None = None
    app_id: Annotated[Number, Field(ge=1)] | None = None
    private_key_file: File | None = None
    tenant: Text | None = None
    enabled: Flag | None = None
    include: Words | None = None
    exclude: Words | None = None
    interval_seconds: Annotated[Real, Field(ge=0, le=31_536_000)] | None = None
    max_pages: Annotated[Number, Field(ge=1, le=1_000_000)] | None = None
    per_page: Annotated[Number, Field(ge=1, le=1000)] | None = None
    max_results: Annotated[Number, Field(ge=1)] | None = None
    updated_rescan_enabled: Flag | None = None
    updated_rescan_max_per_cycle: Annotated[Number, Field(ge=0)] | None = None
    updated_rescan_cooldown_seconds: Annotated[Real, Field(ge=0)] | None = None
    rescan_on_upgrade_max_per_cycle: Annotated[Number, Field(ge=0)] | None = None
    refresh_registry: Flag | None = None
    backlog_first: Literal["skip", "observe", "off"] | None = None
    order: Literal["oldest_change", "newest_change", "most_overdue", "value", "aged_value"] | None = None
    include_archived: Flag | None = None
    include_forks: Flag | None = None
    refs: Literal["heads+tags"] | None = None
    max_in_progress: Annotated[Number, Field(ge=1)] | None = None
    max_future_skew_seconds: Annotated[Real, Field(ge=0, le=86_400)] | None = None
    scanners: Annotated[Words, Field(min_length=1)] | None = None


class SourceSettings(SharedSettings):
    """One configured source."""

    kind: Kind
    scope: Text | None = None
    paths: Words | None = None
    urls: Words | None = None


class Settings(BaseSettings):
    """The whole table. Values come from layers (``layered``), the first one wins, key by key."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    data_dir: File | None = None
    database: DatabaseSettings = DatabaseSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    workers: WorkerSettings = WorkerSettings()
    scan: ScanSettings = ScanSettings()
    web: WebSettings = WebSettings()
    metrics: MetricsSettings = MetricsSettings()
    webhooks: WebhookSettings = WebhookSettings()
    findings: FindingSettings = FindingSettings()
    retention: RetentionSettings = RetentionSettings()
    log: LogSettings = LogSettings()
    network: NetworkSettings = NetworkSettings()
    tenants: dict[str, TenantSettings] = Field(default_factory=dict[str, TenantSettings])
    scanners: dict[str, ScannerSettings] = Field(default_factory=dict[str, ScannerSettings])
    defaults: SharedSettings = SharedSettings()
    sources: dict[str, SourceSettings] = Field(default_factory=dict[str, SourceSettings])


class _Layer(PydanticBaseSettingsSource):
    """Values that were read already."""

    def __init__(self, settings_cls: type[BaseSettings], values: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._values = values

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        """Not used: all values are given at once."""
        del field
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """All values."""
        return self._values


_LAYERS: ContextVar[tuple[dict[str, Any], ...]] = ContextVar("resweep_configuration_layers", default=())


class _Given(Settings):
    """The settings out of the layers of one call."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """None of the library's own sources: it ignores a misspelt section and cannot set a dashed name."""
        del init_settings, env_settings, dotenv_settings, file_secret_settings
        return tuple(_Layer(settings_cls, layer) for layer in _LAYERS.get())


def layered(*layers: dict[str, Any]) -> Settings:
    """Validate the layers put over each other, the first one on top. Raises pydantic's ``ValidationError``."""
    token = _LAYERS.set(layers)
    try:
        return _Given()
    finally:
        _LAYERS.reset(token)

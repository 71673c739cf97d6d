"""The one place where things are made: the database, what scans work with, the sources, out of a configuration."""

import os
import socket
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ..ledger import facts
from ..queue import sources as queue_sources
from ..schema import migrate
from ..schema.clock import Clock, SystemClock
from ..schema.database import Database, pooled_by_transaction
from ..schema.embedded import EmbeddedPostgres
from ..schema.errors import ConfigFault, ResweepError, UsageFault
from ..schema.records import WorkerIdentity
from ..sources.base import Credential, Source
from ..sources.catalog import Selection, Surroundings, make_source
from ..sources.gitcommand import GitCommand, GitSettings
from .config import Configuration
from .config_model import ScannerSettings
from .config_sources import SourceConfig
from .scanners.base import Needs, Scanner
from .scanners.checkout import CheckoutCache
from .scanners.custom import CommandScanner, CommandSpec, Format
from .scanners.detect_secrets import DetectSecrets
from .scanners.identity import FindingsKey, load_key
from .scanners.kingfisher import Kingfisher, KingfisherSettings
from .scanners.limits import Limits
from .scanners.presets import PRESETS
from .scanners.process import Guard

_MEBIBYTE = 1 << 20
_GIBIBYTE = 1 << 30
_SPARE_CONNECTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Store:
    """The database as this process reaches it. ``embedded`` is None where one was given."""

    database: Database
    embedded: EmbeddedPostgres | None
    direct_url: str  # of a direct connection, for migrations; may hold a password: never shown

    def __repr__(self) -> str:
        """Without the address."""
        return f"Store(embedded={self.embedded is not None})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanning:
    """What scans of this process work with."""

    guard: Guard
    git: GitCommand
    cache: CheckoutCache
    key: FindingsKey
    scanners: Mapping[str, Scanner]
    limits: Limits
    seconds: Mapping[str, float]
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveSource:
    """A source that this process knows: its settings, its row, its adapter."""

    config: SourceConfig
    source_id: int
    adapter: Source


def identity() -> WorkerIdentity:
    """This process as a worker: a new UUID at every start."""
    return WorkerIdentity(uuid=uuid4(), host=socket.gethostname()[:200], pid=os.getpid())


def application_name(role: str) -> str:
    """How this process is called in the server's list: at most 63 bytes, as PostgreSQL cuts it."""
    return f"resweep {role} {socket.gethostname()}:{os.getpid()}"[:63]


@contextmanager
def open_store(
    configuration: Configuration,
    *,
    role: str,
    pool_size: int | None = None,
    schema: str = "check",
    tell: Callable[[str], None] | None = None,
) -> Generator[Store, None, None]:
    """Reach the database, starting the embedded one where none is given.

    ``schema``: ``apply`` brings it up to date, ``check`` refuses another one (the embedded one is brought up to date:
    it is ours), ``none`` looks at nothing. Raises ``DatabaseUnavailable``, ``SchemaMismatch``, ``ConfigFault``.
    """
    url = configuration.database_url()
    direct = configuration.direct_url()
    embedded: EmbeddedPostgres | None = None
    with ExitStack() as stack:
        prepared = True
        if url is None:
            embedded = EmbeddedPostgres(configuration.data_dir)
            if tell is not None and embedded.status().state in {"absent", "stopped"}:
                tell("starting PostgreSQL" if embedded.status().state == "stopped" else "setting up PostgreSQL")
            url = embedded.start()
            stack.callback(embedded.stop)
        elif schema == "apply":
            pooled = pooled_by_transaction(url)
            if pooled and direct is None:
                raise ConfigFault(
                    "database.url leads to a transaction pooler, which keeps neither locks nor LISTEN; set "
                    "database.direct_url to a direct address of the same database"
                )
            prepared = not pooled
        if schema == "apply" or (schema == "check" and embedded is not None):
            for name in migrate.apply(direct or url):
                if tell is not None:
                    tell(f"applied {name}")
        elif schema == "check":
            migrate.check(direct or url)
        settings = configuration.settings
        database = Database(
            url,
            direct_conninfo=direct,
            pool_size=pool_size or settings.database.pool_size or settings.workers.concurrency + _SPARE_CONNECTIONS,
            application_name=application_name(role),
            prepared=prepared,
        )
        stack.callback(database.close)
        yield Store(database=database, embedded=embedded, direct_url=direct or url)


@contextmanager
def open_scanning(configuration: Configuration, *, clock: Clock | None = None) -> Generator[Scanning, None, None]:
    """Make the guard, git, the checkout cache, the findings key and the scanners. Starts no program but git's check."""
    settings = configuration.settings
    clock = clock or SystemClock()
    data_dir = configuration.data_dir
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigFault(
            f"data_dir {data_dir} cannot be made: {error.strerror}; set data_dir to a folder that can be written"
        ) from error
    with Guard(data_dir / "work") as guard:
        git = GitCommand.prepare(data_dir / "git", guard.command_runner(), git_settings(configuration))
        cache = CheckoutCache(
            data_dir / "checkouts", git=git, clock=clock, limit_bytes=int(settings.scan.cache_gb * _GIBIBYTE)
        )
        names = {name for source in configuration.sources if source.enabled for name in source.scanners}
        names |= set(settings.defaults.scanners or ("kingfisher",))
        yield Scanning(
            guard=guard,
            git=git,
            cache=cache,
            key=load_key(key_file(configuration)),
            scanners={name: make_scanner(name, configuration) for name in sorted(names)},
            limits=Limits(
                seconds=settings.scan.seconds,
                memory_bytes=settings.scan.memory_mb * _MEBIBYTE,
                processes=settings.scan.processes,
                file_bytes=settings.scan.file_size_mb * _MEBIBYTE,
                output_bytes=settings.scan.output_mb * _MEBIBYTE,
            ),
            seconds={name: each.seconds for name, each in settings.scanners.items() if each.seconds is not None},
            clock=clock,
        )


def git_settings(configuration: Configuration) -> GitSettings:
    """Git's part of ``network.*`` and ``scan.*``."""
    network = configuration.settings.network
    return GitSettings(
        https_proxy=network.https_proxy,
        ca_file=configuration.path(network.ca_file) if network.ca_file else None,
        ssh_key_file=configuration.path(network.ssh_key_file) if network.ssh_key_file else None,
        transfer_seconds=configuration.settings.scan.seconds,
    )


def key_file(configuration: Configuration) -> Path:
    """Where the findings key lies."""
    chosen = configuration.settings.findings.key_file
    return configuration.path(chosen) if chosen else configuration.data_dir / "findings.key"


def settle_key(database: Database, key: FindingsKey, configuration: Configuration) -> None:
    """Refuse to work with another findings key than this database's findings were made with.

    Raises ``ConfigFault``: with it every finding would be a new one.
    """
    me = application_name("worker")
    fact = database.run(lambda conn: facts.settle(conn, facts.FINDINGS_KEY, key.check_value, by=me))
    if fact.value != key.check_value:
        raise ConfigFault(
            f"findings.key_file {key_file(configuration)} is another key than the one this database was first used "
            f"with (by {fact.written_by}, {fact.written_at:%Y-%m-%d}); copy that machine's key file here (mode 0600)"
        )


def make_scanner(name: str, configuration: Configuration) -> Scanner:
    """The scanner of that name: built in, a preset, or configured. Raises ``ConfigFault``."""
    given = configuration.settings.scanners.get(name)
    if name == "kingfisher":
        program = _only_program(name, given)
        return Kingfisher(
            KingfisherSettings(program=program, rule_cache=configuration.data_dir / "rules" / "kingfisher")
        )
    if name == "detect-secrets":
        _only_program(name, given)
        return DetectSecrets()
    return CommandScanner(_spec(name, given))


def _only_program(name: str, given: ScannerSettings | None) -> str | None:
    """A built-in scanner may be another program; its command line is ours."""
    if given is None:
        return None
    changed = [
        key for key in ("since_command", "format", "findings_exit_codes", "needs") if getattr(given, key) is not None
    ]
    if changed or (given.command is not None and (len(given.command) != 1 or name == "detect-secrets")):
        raise ConfigFault(
            f"scanners.{name}.{changed[0] if changed else 'command'}: {name} is built in, its command line is not "
            "changed; give a scanner of your own another name"
        )
    return given.command[0] if given.command else None


def _spec(name: str, given: ScannerSettings | None) -> CommandSpec:
    preset = PRESETS.get(name)
    if preset is None and (given is None or given.command is None):
        raise ConfigFault(f"scanners.{name}.command is missing; write the program and its arguments as a list")
    given = given or ScannerSettings()
    codes = given.findings_exit_codes
    return CommandSpec(
        name=name,
        command=given.command or (preset.command if preset else ()),
        since_command=given.since_command or (preset.since_command if preset and not given.command else ()),
        format=Format(given.format) if given.format else preset.format if preset else Format.SARIF,
        needs=Needs(given.needs) if given.needs else preset.needs if preset else Needs.REPOSITORY,
        findings_exit_codes=frozenset(codes)
        if codes is not None
        else preset.findings_exit_codes
        if preset
        else frozenset(),
        version_command=preset.version_command if preset else (),
        convert=preset.convert if preset and given.format is None else None,
    )


def make_adapter(configuration: Configuration, source: SourceConfig, git: GitCommand, clock: Clock) -> Source:
    """The adapter of a source. Raises ``UsageFault``."""
    token = configuration.secret(
        variable=source.token_env, file=source.token_file, what=f"sources.{source.name}: the token"
    )

    def credential(_address: str) -> Credential | None:
        return Credential(username="resweep", secret=token) if token else None

    data_dir = configuration.data_dir
    return make_source(
        Selection(kind=source.kind, specs=source.specs, include=source.include, exclude=source.exclude),
        Surroundings(
            git=git,
            clock=clock,
            excluded=(data_dir, data_dir / "checkouts"),
            credential=credential if token else None,
        ),
    )


def activate(
    configuration: Configuration,
    sources: Sequence[SourceConfig],
    store: Store,
    scanning: Scanning,
    *,
    cancel: threading.Event | None = None,
) -> tuple[ActiveSource, ...]:
    """Register sources and make their adapters, whose git ends when ``cancel`` is set.

    Raises ``UsageFault`` for a name that changed its kind.
    """
    active: list[ActiveSource] = []
    git = scanning.git.with_runner(scanning.guard.command_runner(cancel=cancel))
    for source in sources:
        adapter = make_adapter(configuration, source, git, scanning.clock)
        try:
            source_id = store.database.run(lambda conn, source=source: register(conn, source))  # type: ignore[misc]
        except ValueError as error:
            raise UsageFault(str(error)) from error
        active.append(ActiveSource(config=source, source_id=source_id, adapter=adapter))
    return tuple(active)


def register(conn: object, source: SourceConfig) -> int:
    """Write a source's row; returns its id."""
    return queue_sources.register(
        conn,  # type: ignore[arg-type]
        name=source.name,
        kind=source.kind,
        scope=source.scope,
        tenant=source.tenant,
        ad_hoc=source.ad_hoc,
        max_in_progress=source.max_in_progress,
        policy=source.order,
    )


class NotReady(ResweepError):
    """Something that a start needs is missing; the text says what and what to do."""

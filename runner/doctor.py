"""The doctor: looks at everything a deployment stands on, and says what is wrong, why it matters, what to do.

Each check is a function that gives diagnoses and never raises for what it finds; one check that fails to run is a
failure by itself and stops no other.
"""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

from ..ledger import authority, facts, server
from ..queue import census
from ..queue import sources as queue_sources
from ..queue.cycles import CYCLE_LOCKS, RUN_LOCKS
from ..queue.leases import LIMIT_LOCKS
from ..schema import migrate
from ..schema.clock import Clock
from ..schema.database import first_line, pooled_by_transaction
from ..schema.embedded import EmbeddedPostgres
from ..schema.errors import ConfigFault, ResweepError
from ..schema.records import State
from ..sources.gitcommand import MINIMUM_VERSION
from .cli.paint import count
from .config import Configuration, is_loopback
from .scanners import canary
from .scanners.process import guarantees
from .wiring import Scanning, Store, open_scanning, open_store

OLDEST_POSTGRES, NEWEST_POSTGRES = 15, 18
_GIBIBYTE = 1 << 30
_DISK_WARN, _DISK_FAIL = 2 * _GIBIBYTE, _GIBIBYTE // 4
_CLOCK_SECONDS = 60.0
_TRANSACTION_WARN = timedelta(minutes=10)
_WAITING_WARN = timedelta(hours=1)
_LEAST_SECRET = 16
_SPARE = 5
_DEAD_SHARE, _DEAD_LEAST = 0.5, 10_000
_LOCK_NAMES = {
    CYCLE_LOCKS: "cycle of source",
    RUN_LOCKS: "pass",
    LIMIT_LOCKS: "limit of source",
    authority.AUTHORITY_LOCKS: "lead of passes",
    migrate.LOCK_CLASS: "migration",
}


class Level(IntEnum):
    """How bad; the worst decides the exit code."""

    GOOD = 0
    WARNING = 1
    FAILURE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What one check says. ``advice`` is what to do, empty when all is well."""

    check: str
    level: Level
    message: str
    advice: str = ""


def examine(configuration: Configuration, *, clock: Clock, scanners: bool = True) -> Iterator[Diagnosis]:
    """Run every check, in the order in which one thing stands on another; gives each as soon as it is known."""
    yield from _guarded("platform", _platform)
    yield from _guarded("settings", lambda: _settings(configuration))
    yield from _guarded("disk", lambda: _disk(configuration))
    yield from _guarded("embedded server", lambda: _embedded(configuration))
    with ExitStack() as stack:
        store: Store | None = None
        try:
            yield from _pooler(configuration)
            opened = stack.enter_context(open_store(configuration, role="doctor", pool_size=2, schema="none"))
            yield from _server(configuration, opened, clock)
            yield from _guarded("schema", lambda: _schema(opened))
            store = opened
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the diagnosis
            yield _failed("database", first_line(error), "start the server, or correct database.url")
        scanning = None
        try:
            scanning = stack.enter_context(open_scanning(configuration, clock=clock))
        except Exception as error:  # noqa: BLE001 - as above
            yield _failed("git", first_line(error), "install git, and give data_dir to this user")
        if scanning is not None:
            ready = scanning
            yield from _guarded("git", lambda: _git(ready))
            yield from _guarded("leftovers", lambda: _leftovers(ready))
            if store is not None:
                reached = store
                yield from _guarded("findings key", lambda: _key(reached, ready))
            if scanners:
                yield from _guarded("scanners", lambda: _scanners(ready))
        if store is not None:
            reached = store
            yield from _guarded("queue", lambda: _queue(reached))


def _guarded(check: str, work: Callable[[], Iterator[Diagnosis]]) -> Iterator[Diagnosis]:
    try:
        yield from work()
    except Exception as error:  # noqa: BLE001 - a check that cannot run is the diagnosis
        yield _failed(check, f"{type(error).__name__}: {first_line(error)}", "")


def _good(check: str, message: str) -> Diagnosis:
    return Diagnosis(check=check, level=Level.GOOD, message=message)


def _warn(check: str, message: str, advice: str) -> Diagnosis:
    return Diagnosis(check=check, level=Level.WARNING, message=message, advice=advice)


def _failed(check: str, message: str, advice: str) -> Diagnosis:
    return Diagnosis(check=check, level=Level.FAILURE, message=message, advice=advice)


def _platform() -> Iterator[Diagnosis]:
    yield _good("platform", f"{platform.platform()}, Python {platform.python_version()}")
    for sentence in guarantees():
        yield _warn("platform", sentence, "run workers on Linux where repositories are not trusted")
    if hasattr(os, "geteuid") and os.geteuid() == 0 and sys.platform != "win32":
        yield _warn(
            "platform", "running as root: a scanner's escape would have the whole machine", "run as a user of its own"
        )


def _settings(configuration: Configuration) -> Iterator[Diagnosis]:
    settings = configuration.settings
    where = str(configuration.file) if configuration.file else "defaults and environment"
    yield _good("settings", f"{where}; {len(configuration.sources)} sources")
    lease, sweep = settings.workers.lease_seconds, configuration.sweep_seconds
    if lease < 3 * sweep:
        yield _warn(
            "settings",
            f"workers.sweep_seconds {sweep:g} is long for a lease of {lease:g} s: a dead worker's targets wait up to "
            f"{lease + sweep:g} s",
            "leave workers.sweep_seconds unset: it is a sixth of the lease then",
        )
    if not is_loopback(settings.web.listen) and settings.web.operator_token_file is None:
        yield _warn("settings", "others can reach the pages and there is no operator", "set web.operator_token_file")
    for name, tenant in settings.tenants.items():
        try:
            secret = configuration.secret(
                variable=tenant.webhook_secret_env, file=tenant.webhook_secret_file, what=f"tenants.{name}"
            )
        except ConfigFault as fault:
            yield _failed("settings", str(fault), "")
            continue
        if secret is not None and len(secret) < _LEAST_SECRET:
            yield _warn(
                "settings",
                f"tenants.{name}: the webhook secret has fewer than {_LEAST_SECRET} characters",
                "make a longer one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )


def _disk(configuration: Configuration) -> Iterator[Diagnosis]:
    folder = configuration.data_dir
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    usage = shutil.disk_usage(folder)
    text = f"{usage.free / _GIBIBYTE:.1f} GiB free of {usage.total / _GIBIBYTE:.1f} at {folder}"
    if usage.free < _DISK_FAIL:
        yield _failed("disk", text, "make room: PostgreSQL stops when the disk is full")
    elif usage.free < _DISK_WARN:
        yield _warn("disk", text, "make room, set data_dir to a larger disk, or lower scan.cache_gb")
    else:
        yield _good("disk", text)
    cache = configuration.settings.scan.cache_gb * _GIBIBYTE
    if cache > usage.total * 0.9:
        yield _warn(
            "disk",
            f"scan.cache_gb {configuration.settings.scan.cache_gb:g} is about all of that disk",
            "lower scan.cache_gb",
        )


def _embedded(configuration: Configuration) -> Iterator[Diagnosis]:
    if configuration.database_url() is not None:
        return
    status = EmbeddedPostgres(configuration.data_dir).status()
    running = f", process {status.pid}" if status.pid else ""
    yield _good("embedded server", f"{status.state}, version {status.version or 'not set up yet'}{running}")


def _pooler(configuration: Configuration) -> Iterator[Diagnosis]:
    url = configuration.database_url()
    if url is None or not pooled_by_transaction(url):
        return
    if configuration.direct_url() is None:
        yield _failed(
            "pooler",
            "database.url leads to a transaction pooler: locks and LISTEN do not work through it",
            "set database.direct_url to a direct address of the same database",
        )
    else:
        yield _good("pooler", "a transaction pooler, with a direct address beside it")


def _server(configuration: Configuration, store: Store, clock: Clock) -> Iterator[Diagnosis]:
    with store.database.connection() as conn:
        before = clock.now()
        seen = server.facts(conn)
        after = clock.now()
        holders = authority.lock_holders(conn)
    major = seen.version_number // 10_000
    if OLDEST_POSTGRES <= major <= NEWEST_POSTGRES:
        yield _good("database", f"PostgreSQL {seen.version}, {seen.database_bytes / (1 << 20):,.0f} MiB")
    else:
        yield _failed("database", f"PostgreSQL {seen.version}", f"use {OLDEST_POSTGRES} to {NEWEST_POSTGRES}")
    for wrong, text, advice in (
        (seen.standby, "this is a standby: it cannot be written", "point database.url at the primary"),
        (seen.encoding != "UTF8", f"its encoding is {seen.encoding}", "make the database with ENCODING 'UTF8'"),
        (not seen.fsync, "fsync is off: a crash of the machine loses what was acknowledged", "switch fsync on"),
        (not seen.full_page_writes, "full_page_writes is off: a crash may damage pages", "switch it on"),
    ):
        if wrong:
            yield _failed("database", text, advice)
    if seen.isolation != "read committed" or seen.time_zone != "UTC":
        yield _warn(
            "database",
            f"sessions are {seen.isolation}, time zone {seen.time_zone}",
            "ALTER ROLE … SET default_transaction_isolation = 'read committed', and TimeZone = 'UTC'",
        )
    away = max(0.0, (before - seen.at).total_seconds(), (seen.at - after).total_seconds())
    if away > _CLOCK_SECONDS:
        yield _warn(
            "clock",
            f"this machine and the database differ by {away:.0f} s; only what people read is affected",
            "run NTP",
        )
    else:
        yield _good("clock", f"this machine and the database agree within {away:.1f} s")
    workers = configuration.settings.workers
    needed = (configuration.settings.database.pool_size or workers.concurrency + 4) + _SPARE
    free = seen.max_connections - seen.connections
    text = f"{seen.connections} of {seen.max_connections} connections used; a runtime takes up to {needed}"
    if free < needed:
        yield _warn("connections", text, "raise max_connections, or put a pooler in front")
    else:
        yield _good("connections", text)
    if seen.oldest_transaction is not None and seen.oldest_transaction > _TRANSACTION_WARN:
        minutes = seen.oldest_transaction.total_seconds() / 60
        yield _warn(
            "transactions",
            f"one is open for {minutes:.0f} minutes ({seen.oldest_application}): dead rows cannot be removed meanwhile",
            "end it: SELECT pid, query FROM pg_stat_activity ORDER BY xact_start",
        )
    if seen.dead_rows > max(_DEAD_LEAST, seen.live_rows * _DEAD_SHARE):
        yield _warn("vacuum", f"{seen.dead_rows:,} dead rows beside {seen.live_rows:,} live ones", "look at autovacuum")
    for namespace, key, pid, name, seconds in holders:
        what = _LOCK_NAMES.get(namespace, f"lock {namespace}")
        yield _good("locks", f"{what} ({namespace}, {key}): {name}, server process {pid}, for {seconds:.0f} s")


def _schema(store: Store) -> Iterator[Diagnosis]:
    states = migrate.status(store.direct_url)
    odd = [each for each in states if each.state in {"edited", "unknown"}]
    pending = [each for each in states if each.state == "pending"]
    if odd:
        yield _failed("schema", f"{odd[0].name} is {odd[0].state}", "use the release that made this database")
    elif pending:
        yield _warn("schema", f"{len(pending)} migrations are not applied", "run `resweep schema apply`")
    else:
        yield _good("schema", f"{len(states)} migrations, all applied")


def _git(scanning: Scanning) -> Iterator[Diagnosis]:
    version = scanning.git.version()
    text = ".".join(map(str, version)) or "unknown"
    if version < MINIMUM_VERSION:
        least = ".".join(map(str, MINIMUM_VERSION))
        yield _failed("git", f"version {text} has holes that hostile repositories use", f"install git {least} or newer")
    else:
        yield _good("git", f"version {text}")


def _leftovers(scanning: Scanning) -> Iterator[Diagnosis]:
    swept = scanning.guard.swept
    if swept:
        yield _good("leftovers", f"folders of {swept} dead processes were removed just now")
    else:
        yield _good("leftovers", "none")


def _key(store: Store, scanning: Scanning) -> Iterator[Diagnosis]:
    with store.database.connection() as conn:
        fact = facts.read(conn, facts.FINDINGS_KEY)
    if fact is None:
        yield _good("findings key", "not used yet")
    elif fact.value != scanning.key.check_value:
        yield _failed(
            "findings key",
            f"another one than this database's findings were made with (by {fact.written_by})",
            "copy that machine's findings.key_file here, with mode 0600",
        )
    else:
        yield _good("findings key", "the one this database's findings were made with")


def _scanners(scanning: Scanning) -> Iterator[Diagnosis]:
    results = canary.check(
        list(scanning.scanners.values()), guard=scanning.guard, git=scanning.git, clock=scanning.clock
    )
    for result in results:
        if result.fault is None:
            yield _good("scanners", f"{result.scanner} finds a planted secret ({result.seconds:.1f} s)")
        else:
            yield _failed("scanners", str(result.fault), "install it, or take it out of `scanners`")


def _queue(store: Store) -> Iterator[Diagnosis]:
    try:
        with store.database.connection() as conn:
            counts = census.counts(conn)
            workers = [w for w in census.workers(conn, seen_within=timedelta(minutes=2)) if w.get("stopped_at") is None]
            rows = queue_sources.list_sources(conn)
    except Exception as error:
        if "does not exist" in str(error):  # no schema yet: said by its own check
            return
        raise ResweepError(first_line(error)) from error
    failed = sum(each.by_state[State.FAILED] + each.by_state[State.UNRESOLVED] for each in counts)
    waiting = sum(each.claimable for each in counts)
    oldest = max((each.oldest_waiting for each in counts if each.oldest_waiting), default=None)
    total = sum(sum(each.by_state.values()) for each in counts)
    yield _good("queue", f"{total:,} targets, {waiting:,} claimable, {len(workers)} worker processes")
    if failed:
        yield _warn("queue", f"{failed:,} targets failed or are unresolved", "`resweep queue list --state failed`")
    if waiting and not workers:
        yield _warn(
            "queue",
            f"{count(waiting, 'target')} {'waits' if waiting == 1 else 'wait'} and nobody works",
            "start `resweep up` or `resweep work`",
        )
    elif oldest is not None and oldest > _WAITING_WARN:
        hours = oldest.total_seconds() / 3600
        yield _warn(
            "queue", f"the oldest target waits for {hours:.1f} hours", "add workers: `resweep work` on more machines"
        )
    for row in rows:
        if row.paused:
            yield _warn(
                "sources",
                f"{row.name} is paused by {row.paused_by}: {row.pause_reason}",
                f"`resweep sources resume {row.name}`",
            )
        elif row.fault_streak:
            yield _warn(
                "sources",
                f"{row.name}: {row.fault_streak} faults in a row: {row.last_fault}",
                "`resweep sources check`",
            )
